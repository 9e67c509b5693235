// Frames of board.js: positions of the worker's game, and the turns after a reply to a puzzle.

import { CAUSES } from "./board.js";

const LETTERS = "udlr-"; // moves, and - for eliminated snakes
const NODES = 2000; // node limit per move of the turns after a reply
let worker;
let queue = Promise.resolve();

/** Converts the words of a state (see worker.js) into a frame of board.js. */
export function readFrame(words) {
  let at = 0;
  const next = () => words[at++];
  const points = (count) => Array.from({ length: count }, () => [next(), next()]);
  const [turn, width, height, count] = [next(), next(), next(), next()];
  const snakes = Array.from({ length: count }, () => {
    const [cause, , diedOn, health, length] = [next(), next(), next(), next(), next()];
    const death = cause ? { cause: Object.keys(CAUSES)[cause - 1], turn: diedOn } : null;
    return { health, length, death, body: points(length) };
  });
  const food = points(next());
  const hazardLayers = new Map();
  for (let runs = next(); runs > 0; runs -= 1) {
    const [x, y, layers] = [next(), next(), next()];
    hazardLayers.set(`${x},${y}`, [x, y, (hazardLayers.get(`${x},${y}`)?.[2] ?? 0) + layers]);
  }
  const hazards = [...hazardLayers.values()].filter(([x, y]) => x >= 0 && y >= 0 && x < width && y < height);
  return { turn, width, height, snakes, food, hazards };
}

function request(message) {
  worker ??= new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  return new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => (data.error ? reject(new Error(data.error)) : resolve(data));
    worker.onerror = ({ message }) => reject(new Error(message ?? "this browser may lack WebAssembly"));
    worker.postMessage(message);
  });
}

/** Returns the frames after `move`, until the snake or the game ends, at most `maxTurns`. */
export function playOut({ source, you, width, height, ruleset, map, snakes }, move, maxTurns) {
  const letters = [...source.moves].map((letter) => LETTERS.indexOf(letter));
  const moves = Array.from({ length: letters.length / snakes.length }, (_, turn) =>
    letters.slice(turn * snakes.length, (turn + 1) * snakes.length));
  const players = snakes.map(() => ({ seconds: 0, nodes: NODES }));
  const game = { width, height, ruleset, map, snakes: snakes.length, seed: source.seed };
  queue = queue.catch(() => {}).then(async () => {
    let { over } = await request({ start: game, moves });
    const frames = [];
    while (!over && frames.length < maxTurns && !frames.at(-1)?.snakes[you].death) {
      const own = frames.length ? {} : { [you]: LETTERS.indexOf(move[0]) };
      const sent = await request({ turn: { moves: own, players } });
      frames.push(readFrame(sent.words));
      over = sent.over;
    }
    return frames;
  });
  return queue;
}
