// Worker that runs the game and the search, so that the page stays responsive.
//
//   in:  {start: {width, height, snakes, seed, ruleset, map}, moves}   starts a game and plays
//                                                 `moves`: for each turn one move per seat
//        {turn: {moves: {seat: move}, players: {seat: player}}}  plays a turn; a player is
//                                                 {seconds, nodes}, {policy: true} or {builtin: "hungry"}
//        {assess: turn}                           assesses the current position with the champion
//        {review: {start, moves, until}}          assesses the last positions before turn `until`
//        {compare: {start, moves, losses}}        finds the costliest of these moves of the visitor:
//                                                 [{turn, played, best}]
//   out: {words, over, decisions}                 the state as int32 words (see game.c); decisions by seat
//        with {moves}, the moves played by seat; after a start with {past}, the words of every turn
//        {assessment, turn}                       {learned, seats: {seat: {move, depth, leafEvaluations,
//                                                 values, line}}}
//        {reviewed: [{turn, assessment}]}
//        {compared: {turn, played, best, before, after}}         scores of rollouts
//        {error}                                  message

import { MISTAKES, NAMED, TRAINED_FOR } from "./facts.js";
import { Policy } from "./policy.js";

const INT32_MIN = -(2 ** 31);
const MAX_REVIEWED_TURNS = 60;
// Node limit per snake.
const ASSESSMENT_NODES = 3000;
const MAX_LINE_TURNS = 14;
const MAX_SNAKES = 16;
let module;
let policy = null; // The worker loads the policy on first use.
let assessments = new Map(); // Assessments by turn of the current game.
let trained = false; // True if the network was trained for the settings of this game.

/** Imports of the compiled code: a clock, and poll_oneoff (sleep), which is never called. */
function clockTimeGet(_clock, _precision, at) {
  const nanoseconds = BigInt(Math.round(performance.now() * 1e6));
  new DataView(module.memory.buffer).setBigUint64(at, nanoseconds, true);
  return 0;
}

async function load() {
  const imports = {
    wasi_snapshot_preview1: { clock_time_get: clockTimeGet, poll_oneoff: () => 0 },
  };
  const response = await fetch(new URL("game.wasm", import.meta.url));
  if (!response.ok) throw new Error(`game.wasm: ${response.status} ${response.statusText}`);
  const { instance } = await WebAssembly.instantiate(await response.arrayBuffer(), imports);
  module = instance.exports;
  module._initialize();
  module.prepare();
}

const bytes = (at, count) => new Uint8Array(module.memory.buffer, at, count);
const numbers = (at, count) => new Int32Array(module.memory.buffer, at, count);

function start({ width, height, snakes, seed, ruleset, map }) {
  const name = new TextEncoder().encode(`${map}\0`);
  bytes(module.map_at(), name.length).set(name);
  const started = module.start(
    width, height, snakes, BigInt(seed), ruleset.startsWith("wrapped"),
    ruleset.endsWith("constrictor"),
    ruleset === "royale", 15, 1, 14, 25);
  trained = TRAINED_FOR.rulesets.includes(ruleset) && TRAINED_FOR.snakes.includes(snakes) &&
    TRAINED_FOR.sizes.some(([w, h]) => w === width && h === height);
  if (!started) throw new Error(`the map ${map} does not support ${snakes} snakes on ${width}x${height}`);
}

/** Returns the words of the state (format: battlesnake_gym/engine/csrc/state_words.c). */
function stateWords() {
  const at = module.words_at();
  const all = numbers(at, (module.memory.buffer.byteLength - at) >> 2);
  let end = 4;
  for (let seat = 0; seat < all[3]; seat += 1) end += 5 + 2 * all[end + 4];
  end += 1 + 2 * all[end];
  end += 1 + 3 * all[end];
  end += 1 + 2 * all[end] + 1;
  return all.slice(0, end);
}

/** Returns a list of booleans by seat: true if the snake is alive (elimination cause 0). */
function living(words) {
  const alive = [];
  let at = 4;
  for (let seat = 0; seat < words[3]; seat += 1) {
    alive.push(words[at] === 0);
    at += 5 + 2 * words[at + 4];
  }
  return alive;
}

/** Returns the living seats, starting with the searching seat, as in the lines of the search. */
function lineSeats(seat) {
  return [seat, ...living(stateWords()).flatMap((alive, other) => (alive && other !== seat ? [other] : []))];
}

function search(seat, seconds, nodes, decoupled = 0) {
  const move = module.think(seat, seconds, nodes, trained, decoupled);
  const [depth, leafEvaluations, ...rest] = numbers(module.report_at(), 7);
  const turns = Math.min(rest.pop(), MAX_LINE_TURNS);
  const moves = bytes(module.line_at(), turns * MAX_SNAKES);
  const line = Object.fromEntries(lineSeats(seat).map((id, i) => [id,
    Array.from({ length: turns }, (_, turn) => moves[turn * MAX_SNAKES + i]).filter((m) => m < 4)]));
  return { move, depth, leafEvaluations, values: rest.map((v) => (v === INT32_MIN ? null : v / 1000)), line };
}

/** Assesses the current position for every living snake. */
function assess(turn) {
  if (!assessments.has(turn)) {
    const seats = living(stateWords()).flatMap((alive, seat) => (alive ? [seat] : []));
    const found = Object.fromEntries(seats.map((seat) => [seat, search(seat, 0, ASSESSMENT_NODES)]));
    assessments.set(turn, { seats: found, learned: trained && seats.length > 1 });
  }
  return assessments.get(turn);
}

/** Returns the best move of the policy that the action mask allows. */
function policyDecision(seat) {
  const [words, moves] = [stateWords(), module.allowed(seat)];
  const [width, height] = [words[1], words[2]];
  const planes = bytes(module.seen_at(seat), 16 * width * height).slice();
  const values = policy.values(planes, width, height).map((v, i) => (moves >> i & 1 ? v : -Infinity));
  return { move: values.indexOf(Math.max(...values)), values };
}

function decide(seat, player) {
  if (player.builtin) return { move: module.named(seat, NAMED.indexOf(player.builtin) + 1) };
  return player.policy ? policyDecision(seat) : search(seat, player.seconds, player.nodes, 1);
}

async function turn({ moves, players }) {
  if (!policy && Object.values(players).some((player) => player.policy)) policy = await Policy.load();
  const decisions = {};
  const actions = living(stateWords()).map((alive, seat) => {
    if (!alive) return 4;
    if (moves[seat] !== undefined) return moves[seat];
    decisions[seat] = decide(seat, players[seat]);
    return decisions[seat].move;
  });
  play(actions);
  return { decisions, moves: actions };
}

function play(actions) {
  if (module.over()) throw new Error("the game is over before the last of these moves");
  bytes(module.actions_at(), actions.length).set(actions);
  module.turn();
}

function begin(game, moves = []) {
  start(game);
  assessments = new Map();
  return [stateWords(), ...moves.map((actions) => { play(actions); return stateWords(); })];
}

/** Assesses the last turns of a game. Afterwards, the end of the game is the current state. */
function review({ start: game, moves, until }) {
  const reviewed = [];
  start(game);
  moves.forEach((actions, turn) => {
    if (turn < until && turn >= until - MAX_REVIEWED_TURNS) reviewed.push({ turn, assessment: assess(turn) });
    play(actions);
  });
  return reviewed;
}

/** Returns the mean score of the visitor in rollouts after `move` (see analysis/mistakes.py). */
function rolloutScore({ start: game, moves }, turn, move, games, seed) {
  begin(game, moves.slice(0, turn));
  const before = living(stateWords()).filter(Boolean).length;
  play(moves[turn].map((played, seat) => (seat ? played : move)));
  const alive = living(stateWords());
  if (!alive.some(Boolean)) return 1 / before;
  if (!alive[0] || module.over()) return Number(alive[0]);
  const { nodes, careful, longest } = MISTAKES;
  let won = 0;
  for (let i = seed; i < seed + games; i += 1) {
    won += module.played_on(0, nodes[i % nodes.length], careful[i % careful.length], i, longest, trained);
  }
  return won / games;
}

/** Finds the costliest move: few rollouts of every move, then more rollouts of the worst move. */
function compare({ losses, ...game }) {
  const scores = (loss, games, seed) =>
    [loss.best, loss.played].map((move) => rolloutScore(game, loss.turn, move, games, seed));
  const difference = ([before, after]) => before - after;
  const costs = losses.map((loss) => difference(scores(loss, MISTAKES.glance, 1)));
  const worst = losses[costs.indexOf(Math.max(...costs))];
  const [before, after] = scores(worst, MISTAKES.games, 1 + MISTAKES.glance);
  begin(game.start, game.moves); // This call restores the final state of the game.
  return { ...worst, before, after };
}

async function respond(data) {
  if (data.compare) return { compared: compare(data.compare) };
  if (data.review) return { reviewed: review(data.review) };
  if (data.assess !== undefined) return { assessment: assess(data.assess), turn: data.assess };
  const found = data.start ? { past: begin(data.start, data.moves), decisions: {} } : await turn(data.turn);
  return { ...found, words: stateWords(), over: Boolean(module.over()) };
}

// Messages are processed in order, so that no response precedes an earlier response.
const ready = load();
let queue = ready.catch(() => {});
self.onmessage = ({ data }) => {
  queue = queue.then(() => ready).then(() => respond(data)).then(
    (found) => self.postMessage(found),
    (error) => self.postMessage({ error: String(error.message ?? error) }));
};
