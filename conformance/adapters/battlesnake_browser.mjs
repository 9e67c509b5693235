// Adapter for the engine of the playable page: node battlesnake_browser.mjs FOLDER/docs/play/game.wasm.
// The command python tools/build_site.py FOLDER --only play builds game.wasm. The adapter can start
// games, but cannot load positions.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const CAUSES = [undefined, "wall-collision", "snake-self-collision", "snake-collision", "head-collision",
  "out-of-health", "hazard"];
const MOVES = ["up", "down", "left", "right"];
const NO_MOVE = 4;

const imports = { wasi_snapshot_preview1: { clock_time_get: () => 0, poll_oneoff: () => 0 } };
const engine = (await WebAssembly.instantiate(readFileSync(process.argv[2]), imports)).instance.exports;
engine._initialize();
engine.prepare();
let names = [];

function start({ ruleset, map, w, h, seed, settings, snakes, solo }) {
  const alone = solo || ruleset === "solo";
  if (alone !== (snakes.length === 1)) return { refused: "solo is a game of one snake" };
  const { foodSpawnChance, minimumFood, hazardDamagePerTurn, shrinkEveryNTurns } = settings;
  names = snakes;
  new Uint8Array(engine.memory.buffer).set(new TextEncoder().encode(`${map}\0`), engine.map_at());
  const begun = engine.start(
    w, h, snakes.length, seed, ruleset.startsWith("wrapped"), ruleset.endsWith("constrictor"),
    ruleset === "royale", foodSpawnChance, minimumFood, hazardDamagePerTurn, shrinkEveryNTurns);
  return begun ? state() : { refused: "the map, the size or the number of snakes" };
}

function step(moves) {
  const actions = moves.map((move) => (MOVES.includes(move) ? MOVES.indexOf(move) : NO_MOVE));
  new Uint8Array(engine.memory.buffer).set(actions, engine.actions_at());
  return engine.turn() ? state() : { error: "the turn is refused" };
}

function state() {
  const address = engine.words_at(); // which may move the memory
  const words = new Int32Array(engine.memory.buffer, address);
  let at = 4;
  const take = (count) => Array.from(words.subarray(at, (at += count)));
  const points = () => take(2 * take(1)[0]);
  const s = Array.from({ length: words[3] }, () => {
    const [cause, killer, on, hp] = take(4);
    const fate = cause ? { x: CAUSES[cause], by: names[killer], on } : {};
    return { hp, b: points(), ...fate };
  });
  const f = points();
  const runs = Array.from({ length: take(1)[0] }, () => take(3));
  const hz = runs.flatMap(([x, y, count]) => Array(count).fill([x, y]).flat());
  return { t: words[0], s, f, hz, over: Boolean(engine.over()) };
}

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line.replace(/"seed": ?(-?\d+)/, '"seed":"$1"')); // all its 64 bits
  let answer = { refused: "it loads no positions" };
  if (asked.hello) answer = { engine: "engine in WebAssembly", lacks: [] };
  if (asked.start) answer = start({ ...asked.start, seed: BigInt(asked.start.seed) });
  if (asked.step) answer = step(asked.step);
  console.log(JSON.stringify(answer));
}
