// The game and the search, off the page's thread, so that the board never freezes.
//
//   in:  {start: {width, height, snakes, seed, ruleset, map}, moves}   begin a game, and play these
//                                                               turns of it: [[a move a seat]]
//        {turn: {moves: {seat: move}, seconds, positions}}       play a turn; seats without a move
//                                                               are played by the search
//        {judge: {start, moves, seat, until, positions}}        value all moves of the snake in this
//                                                               seat, of the last turns before `until`
//   out: {words, over, thought}   the game as numbers (see game.c); what the search found, by seat
//        with {moves} that were played, by seat, and after a start {past}: words of every turn
//        {judged: [{turn, values}]}
//        {error}                  in words

import { TRAINED_FOR } from "./facts.js";

const INT32_MIN = -(2 ** 31);
const JUDGED = 60; // turns before a death that are judged
let module;
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

/** How long the list of numbers is: see battlesnake_gym/engine/csrc/convert.c. */
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

function think(seat, seconds, positions) {
  const move = module.think(seat, seconds, positions, trained);
  const [depth, valued, ...values] = numbers(module.report_at(), 6);
  return { move, depth, valued, values: values.map((v) => (v === INT32_MIN ? null : v / 1000)) };
}

function turn({ moves, seconds, positions }) {
  const thought = {};
  const actions = living(gameWords()).map((alive, seat) => {
    if (!alive) return 4;
    if (moves[seat] !== undefined) return moves[seat];
    thought[seat] = think(seat, seconds, positions);
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
  return [gameWords(), ...moves.map((actions) => { play(actions); return gameWords(); })];
}

/** Played over again to its end, so that the game can go on afterwards. */
function judge({ start: game, moves, seat, until, positions }) {
  const judged = [];
  start(game);
  moves.forEach((actions, turn) => {
    if (turn < until && turn >= until - JUDGED) {
      judged.push({ turn, values: think(seat, 0, positions).values });
    }
    play(actions);
  });
  return judged;
}

const ready = load();

self.onmessage = async ({ data }) => {
  try {
    await ready;
    if (data.judge) {
      self.postMessage({ judged: judge(data.judge) });
      return;
    }
    const found = data.start ? { past: begin(data.start, data.moves), thought: {} } : turn(data.turn);
    self.postMessage({ ...found, words: gameWords(), over: Boolean(module.over()) });
  } catch (error) {
    self.postMessage({ error: String(error.message ?? error) });
  }
};
