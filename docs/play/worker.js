// Worker that runs the game and the search, so that the page stays responsive.
//
//   in:  {start: {width, height, snakes, seed, ruleset, map, view_radius}, moves}   starts a game and
//                                                 plays `moves`: for each turn one move per seat
//        {turn: {moves: {seat: move}, players: {seat: player}}}  plays a turn; a player is
//                                                 {seconds, nodes}, {policy: true} or {builtin: "hungry"}
//        {assess: turn}                           assesses the position of a turn with the champion
//        {review: true}                           assesses all turns and finds the mistakes of seat 0
//   out: {words, over, decisions}                 the state as int32 words (see game.c); decisions by seat
//        with {moves}, the moves played by seat; after a start with {past}, the words of every turn
//        {assessment, turn}                       {seat: {winProbability, candidates: [{move,
//                                                 winProbability, line}]}}
//        {progress}                               fraction of the review, which also sends assessments
//        {reviewed: [mistake], assessments}       mistakes: {turn, move, better, before, after, scores},
//                                                 worst first; all assessments by turn
//        {error}                                  message

import { CALIBRATION, MISTAKES, NAMED, TRAINED_FOR } from "./facts.js";
import { Policy } from "./policy.js";

const INT32_MIN = -(2 ** 31);
const MAX_SNAKES = 16;
const PROGRESS_MS = 100;
const ROLLOUTS_PER_STEP = 36; // A message cancels a review after at most this number of rollouts.
const CANCELED = "canceled";
let messages = 0; // Number of messages that cancel a review.
let module;
let policy = null; // The worker loads the policy on first use.
let game = null; // The started game, and its moves by turn.
let played = [];
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

function start({ width, height, snakes, seed, ruleset, map, view_radius = null }) {
  const name = new TextEncoder().encode(`${map}\0`);
  bytes(module.map_at(), name.length).set(name);
  const started = module.start(
    width, height, snakes, BigInt(seed), ruleset.startsWith("wrapped"),
    ruleset.endsWith("constrictor"),
    ruleset === "royale", 15, 1, 14, 25, view_radius === null ? 0 : view_radius + 1);
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

function search(seat, seconds, nodes, { decoupled = 0, exact = 0 } = {}) {
  const move = module.think(seat, seconds, nodes, trained, decoupled, exact);
  const [depth, leafEvaluations, ...rest] = numbers(module.report_at(), 10);
  const values = rest.slice(0, 4).map((v) => (v === INT32_MIN ? null : v / 1000));
  const seats = lineSeats(seat);
  const lineOf = (first) => {
    const turns = Math.min(rest[4 + first], MISTAKES.lineTurns);
    const moves = bytes(module.line_at(first), turns * MAX_SNAKES);
    return Object.fromEntries(seats.map((id, i) => [id,
      Array.from({ length: turns }, (_, turn) => moves[turn * MAX_SNAKES + i]).filter((m) => m < 4)]));
  };
  return { move, depth, leafEvaluations, values, lineOf };
}

/** Returns win probabilities of search values (see battlesnake_heuristics/analysis/win_probability.py). */
function winProbabilities(values, turn, learned) {
  const { weights, far, late, decided, sure, least } = CALIBRATION;
  const [near, nearLate, over] = weights[learned ? "learned" : "handcrafted"][Math.min(3, Math.max(2, values.length))];
  const won = values.length === 2 && Math.max(...values) > sure;
  const lost = values.map((value) => value < -sure || (won && value < sure));
  const odds = values.map((value, i) => {
    if (lost[i]) return lost.includes(false) ? 0 : 1;
    const cut = 2 * Math.tanh(value / far);
    return Math.exp(near * cut + (nearLate * cut * Math.min(turn, late)) / late +
      over * ((value > decided) - (value < -decided)));
  });
  const sum = (terms) => terms.reduce((total, one) => total + one, 0);
  const clamped = odds.map((value) => Math.max(value, least * sum(odds)));
  return clamped.map((value) => value / sum(clamped));
}

/** Assesses the current position for every living snake (see analysis/position_analysis.py). */
function assess(turn) {
  if (!assessments.has(turn)) {
    const seats = living(stateWords()).flatMap((alive, seat) => (alive ? [seat] : []));
    const found = seats.length < 2 ? [] : seats.map((seat) => {
      const { move, values, lineOf } = search(seat, 0, MISTAKES.analysisNodes, { exact: 2 });
      const moves = [0, 1, 2, 3].filter((one) => values[one] !== null)
        .sort((a, b) => (a !== move) - (b !== move) || values[b] - values[a]).slice(0, 3);
      return moves.map((one) => ({ move: one, value: values[one], line: lineOf(one) }));
    });
    const best = found.map(([{ value }]) => value);
    const probabilities = (values) => winProbabilities(values, turn, trained);
    assessments.set(turn, Object.fromEntries(seats.map((seat, i) => [seat, {
      winProbability: found.length ? probabilities(best)[i] : 1,
      candidates: (found[i] ?? []).map(({ value, ...candidate }) =>
        ({ ...candidate, winProbability: probabilities(best.with(i, value))[i] })),
    }])));
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
  return player.policy ? policyDecision(seat) : search(seat, player.seconds, player.nodes, { decoupled: 2 });
}

async function turn({ moves, players }) {
  if (!policy && Object.values(players).some((player) => player.policy)) policy = await Policy.load();
  goTo(played.length);
  const decisions = {};
  const actions = living(stateWords()).map((alive, seat) => {
    if (!alive) return 4;
    if (moves[seat] !== undefined) return moves[seat];
    const { lineOf, ...decision } = decide(seat, players[seat]);
    decisions[seat] = decision;
    return decision.move;
  });
  play(actions);
  played.push(actions);
  return { decisions, moves: actions };
}

function play(actions) {
  if (module.over()) throw new Error("the game is over before the last of these moves");
  bytes(module.actions_at(), actions.length).set(actions);
  module.turn();
}

/** Makes the position of a turn the current position. */
function goTo(turn) {
  start(game);
  played.slice(0, turn).forEach(play);
}

/** Starts a game and plays its moves. Returns the words of all turns. */
function begin(started, moves = []) {
  const differs = moves.findIndex((actions, turn) => String(actions) !== String(played[turn]));
  const shared = JSON.stringify(game) !== JSON.stringify(started) ? -1 : differs < 0 ? moves.length : differs;
  for (const turn of [...assessments.keys()]) if (turn > shared) assessments.delete(turn);
  [game, played] = [started, moves];
  start(game);
  return [stateWords(), ...moves.map((actions) => { play(actions); return stateWords(); })];
}

/** Returns a seat's scores in rollouts after `move`, from the current position. */
function rolloutScores(turn, seat, move, games, seed) {
  const { nodes, doublings, turns } = MISTAKES;
  const extra = doublings[Math.min(3, living(stateWords()).filter(Boolean).length)];
  bytes(module.actions_at(), played[turn].length).set(played[turn].with(seat, move));
  return Array.from({ length: games }, (_, index) => {
    const i = seed + index;
    const points = module.rollout(seat, nodes[i % nodes.length], extra[i % extra.length], i, turns);
    const [count, ...values] = numbers(module.report_at(), MAX_SNAKES + 1);
    return count ? winProbabilities(values.slice(0, count).map((value) => value / 1000), turn + turns, true)[0] : points;
  });
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Returns the safe moves of a seat in the current position. */
const safeMoves = (seat) => [0, 1, 2, 3].filter((move) => module.safe(seat) >> move & 1);

/** Compares a played move with the best other safe move, as `assess_move` in analysis/mistakes.py does. */
async function assessMove(turn, seat, onProgress) {
  goTo(turn);
  const move = played[turn][seat];
  const results = new Map([...new Set([...safeMoves(seat), move])].map((one) => [one, []]));
  let found = null;
  for (const games of MISTAKES.rounds) {
    for (const [one, scores] of results) {
      for (const end = scores.length + games; scores.length < end;) {
        const part = Math.min(ROLLOUTS_PER_STEP, end - scores.length);
        scores.push(...rolloutScores(turn, seat, one, part, 1 + scores.length));
        await onProgress();
      }
    }
    const scores = new Map([...results].map(([one, values]) => [one, mean(values)]));
    const others = [...scores.keys()].filter((one) => one !== move);
    const better = others.reduce((best, one) => (scores.get(one) > scores.get(best) ? one : best));
    found = { turn, move, better, before: scores.get(better), after: scores.get(move), scores };
    const losses = results.get(move).map((score, i) => results.get(better)[i] - score);
    const loss = lossOf(found);
    const deviation = Math.sqrt(mean(losses.map((one) => (one - loss) ** 2)));
    const error = Math.max(deviation, MISTAKES.minDeviation) / Math.sqrt(losses.length);
    const excess = (loss - MISTAKES.loss) / error;
    const enough = losses.length >= MISTAKES.minMistakeRollouts;
    if (excess < -MISTAKES.minStandardErrors || (enough && excess > MISTAKES.minStandardErrors)) break;
  }
  return found;
}

const lossOf = ({ before, after }) => before - after;

/** Finds the mistakes of a seat, worst first. */
async function findMistakes(seat, onProgress) {
  const found = [];
  for (let turn = 0; turn < played.length; turn += 1) {
    goTo(turn);
    if (!living(stateWords())[seat]) break;
    self.postMessage({ assessment: assess(turn), turn });
    const report = () => onProgress(turn / played.length);
    await report();
    goTo(turn);
    if (safeMoves(seat).some((move) => move !== played[turn][seat])) found.push(await assessMove(turn, seat, report));
  }
  return found.filter((one) => lossOf(one) >= MISTAKES.loss).sort((a, b) => lossOf(b) - lossOf(a));
}

/** Replaces the win probabilities of a turn with a mistake (see analysis/game_analysis.py). */
function applyRollouts(assessment, seat, { before, scores }) {
  const one = assessment[seat];
  const scale = (1 - before) / Math.max(1 - one.winProbability, 1e-9);
  for (const other of Object.values(assessment)) {
    for (const value of [other, ...other.candidates]) value.winProbability = Math.min(1, value.winProbability * scale);
  }
  one.winProbability = before;
  for (const candidate of one.candidates) candidate.winProbability = scores.get(candidate.move) ?? 0;
  one.candidates.sort((a, b) => b.winProbability - a.winProbability);
}

/** Assesses all turns and finds the mistakes of seat 0. Stops if another message arrives. */
async function review() {
  const from = messages;
  let shown = 0;
  const onProgress = async (progress) => {
    if (performance.now() - shown < PROGRESS_MS) return;
    shown = performance.now();
    self.postMessage({ progress });
    await new Promise((resolve) => { setTimeout(resolve); });
    if (messages !== from) throw new Error(CANCELED);
  };
  const mistakes = await findMistakes(0, onProgress);
  const found = new Map([...assessments].map(([turn, one]) => [turn, structuredClone(one)]));
  for (const mistake of mistakes) applyRollouts(found.get(mistake.turn), 0, mistake);
  return { reviewed: mistakes, assessments: found };
}

async function respond(data) {
  if (data.review) return review();
  if (data.assess !== undefined) {
    goTo(data.assess);
    return { assessment: assess(data.assess), turn: data.assess };
  }
  const found = data.start ? { past: begin(data.start, data.moves), decisions: {} } : await turn(data.turn);
  return { ...found, words: stateWords(), over: Boolean(module.over()) };
}

// Messages are processed in order, so that no response precedes an earlier response.
const ready = load();
let queue = ready.catch(() => {});
self.onmessage = ({ data }) => {
  if (data.assess === undefined) messages += 1;
  queue = queue.then(() => ready).then(() => respond(data)).then(
    (found) => self.postMessage(found),
    (error) => { if (error.message !== CANCELED) self.postMessage({ error: String(error.message ?? error) }); });
};
