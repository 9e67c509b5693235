// The game and the search, off the page's thread, so that the board never freezes.
//
//   in:  {start: {width, height, snakes, seed, ruleset, map}, moves}   begin a game, and play these
//                                                               turns of it: [[a move a seat]]
//        {turn: {moves: {seat: move}, players: {seat: player}}}  play a turn; a player is
//                                                               {seconds, positions}, {policy: true}
//                                                               or {named: "hungry"}
//        {look: turn}                                            what the champion thinks of the
//                                                               position that is on now
//        {judge: {start, moves, until}}                          the same of the last turns before
//                                                               `until`
//        {weigh: {start, moves, falls}}                          which of these moves of the visitor
//                                                               cost most: [{turn, played, best}]
//   out: {words, over, thought}   the game as numbers (see game.c); what the search found, by seat
//        with {moves} that were played, by seat, and after a start {past}: words of every turn
//        {look, turn}             {learned, seen: {seat: {move, depth, valued, values, line}}}
//        {judged: [{turn, look}]}
//        {weighed: {turn, played, best, before, after}}          shares of games that go on
//        {error}                  in words

import { MISTAKES, NAMED, TRAINED_FOR } from "./facts.js";
import { Policy } from "./policy.js";

const INT32_MIN = -(2 ** 31);
const JUDGED = 60; // turns before a death that are judged
const LOOK = 3000; // positions for each snake of a turn that is judged
const LONGEST_LINE = 14; // turns
const MAX_SNAKES = 16;
let module;
let policy = null; // fetched when it plays for the first time
let looks = new Map(); // by turn, of the game that is on
let trained = false; // whether the learned evaluation was trained for this game

/** What the compiled code asks of its surroundings: what time it is. It can also sleep, and never does. */
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
  const begun = module.start(
    width, height, snakes, BigInt(seed), ruleset.startsWith("wrapped"),
    ruleset.endsWith("constrictor"),
    ruleset === "royale", 15, 1, 14, 25);
  trained = TRAINED_FOR.rulesets.includes(ruleset) && TRAINED_FOR.snakes.includes(snakes) &&
    TRAINED_FOR.sizes.some(([w, h]) => w === width && h === height);
  if (!begun) throw new Error(`the map ${map} is not made for ${snakes} snakes on ${width}x${height}`);
}

/** How long the list of numbers is: see battlesnake_gym/engine/csrc/state_words.c. */
function gameWords() {
  const at = module.words_at();
  const all = numbers(at, (module.memory.buffer.byteLength - at) >> 2);
  let end = 4;
  for (let seat = 0; seat < all[3]; seat += 1) end += 5 + 2 * all[end + 4];
  end += 1 + 2 * all[end];
  end += 1 + 3 * all[end];
  end += 1 + 2 * all[end] + 1;
  return all.slice(0, end);
}

/** Whether each snake lives: its cause of death is 0. */
function living(words) {
  const alive = [];
  let at = 4;
  for (let seat = 0; seat < words[3]; seat += 1) {
    alive.push(words[at] === 0);
    at += 5 + 2 * words[at + 4];
  }
  return alive;
}

/** The seats of the living, in the order of the search's lines. */
function order(seat) {
  return [seat, ...living(gameWords()).flatMap((alive, other) => (alive && other !== seat ? [other] : []))];
}

function think(seat, seconds, positions, decoupled = 0) {
  const move = module.think(seat, seconds, positions, trained, decoupled);
  const [depth, valued, ...rest] = numbers(module.report_at(), 7);
  const turns = Math.min(rest.pop(), LONGEST_LINE);
  const moves = bytes(module.line_at(), turns * MAX_SNAKES);
  const line = Object.fromEntries(order(seat).map((id, i) => [id,
    Array.from({ length: turns }, (_, turn) => moves[turn * MAX_SNAKES + i]).filter((m) => m < 4)]));
  return { move, depth, valued, values: rest.map((v) => (v === INT32_MIN ? null : v / 1000)), line };
}

/** What the champion thinks of the position, for every living snake. */
function look(turn) {
  if (!looks.has(turn)) {
    const seats = living(gameWords()).flatMap((alive, seat) => (alive ? [seat] : []));
    const seen = Object.fromEntries(seats.map((seat) => [seat, think(seat, 0, LOOK)]));
    looks.set(turn, { seen, learned: trained && seats.length > 1 });
  }
  return looks.get(turn);
}

/** The best move of the policy that its mask allows. */
function learned(seat) {
  const [words, moves] = [gameWords(), module.allowed(seat)];
  const [width, height] = [words[1], words[2]];
  const planes = bytes(module.seen_at(seat), 16 * width * height).slice();
  const values = policy.values(planes, width, height).map((v, i) => (moves >> i & 1 ? v : -Infinity));
  return { move: values.indexOf(Math.max(...values)), values };
}

function decide(seat, player) {
  if (player.named) return { move: module.named(seat, NAMED.indexOf(player.named) + 1) };
  return player.policy ? learned(seat) : think(seat, player.seconds, player.positions, 1);
}

async function turn({ moves, players }) {
  if (!policy && Object.values(players).some((player) => player.policy)) policy = await Policy.load();
  const thought = {};
  const actions = living(gameWords()).map((alive, seat) => {
    if (!alive) return 4;
    if (moves[seat] !== undefined) return moves[seat];
    thought[seat] = decide(seat, players[seat]);
    return thought[seat].move;
  });
  play(actions);
  return { thought, moves: actions };
}

function play(actions) {
  if (module.over()) throw new Error("these moves are not those of a game");
  bytes(module.actions_at(), actions.length).set(actions);
  module.turn();
}

function begin(game, moves = []) {
  start(game);
  looks = new Map();
  return [gameWords(), ...moves.map((actions) => { play(actions); return gameWords(); })];
}

/** Played over again to its end, so that the game can go on afterwards. */
function judge({ start: game, moves, until }) {
  const judged = [];
  start(game);
  moves.forEach((actions, turn) => {
    if (turn < until && turn >= until - JUDGED) judged.push({ turn, look: look(turn) });
    play(actions);
  });
  return judged;
}

/** The share of games that the visitor wins after `move` on a turn: heuristics' judge/mistakes.py. */
function share({ start: game, moves }, turn, move, games, seed) {
  begin(game, moves.slice(0, turn));
  const before = living(gameWords()).filter(Boolean).length;
  play(moves[turn].map((played, seat) => (seat ? played : move)));
  const alive = living(gameWords());
  if (!alive.some(Boolean)) return 1 / before;
  if (!alive[0] || module.over()) return Number(alive[0]);
  const { positions, careful, longest } = MISTAKES;
  let won = 0;
  for (let i = seed; i < seed + games; i += 1) {
    won += module.played_on(0, positions[i % positions.length], careful[i % careful.length], i, longest, trained);
  }
  return won / games;
}

/** Of these moves the one that cost most games, by some from each and by more from that one. */
function weigh({ falls, ...played }) {
  const shares = (fall, games, seed) =>
    [fall.best, fall.played].map((move) => share(played, fall.turn, move, games, seed));
  const cost = ([before, after]) => before - after;
  const costs = falls.map((fall) => cost(shares(fall, MISTAKES.glance, 1)));
  const worst = falls[costs.indexOf(Math.max(...costs))];
  const [before, after] = shares(worst, MISTAKES.games, 1 + MISTAKES.glance);
  begin(played.start, played.moves); // where the game was
  return { ...worst, before, after };
}

async function answer(data) {
  if (data.weigh) return { weighed: weigh(data.weigh) };
  if (data.judge) return { judged: judge(data.judge) };
  if (data.look !== undefined) return { look: look(data.look), turn: data.look };
  const found = data.start ? { past: begin(data.start, data.moves), thought: {} } : await turn(data.turn);
  return { ...found, words: gameWords(), over: Boolean(module.over()) };
}

// One after the other: what takes its time must not be overtaken.
const ready = load();
let before = ready.catch(() => {});
self.onmessage = ({ data }) => {
  before = before.then(() => ready).then(() => answer(data)).then(
    (found) => self.postMessage(found),
    (error) => self.postMessage({ error: String(error.message ?? error) }));
};
