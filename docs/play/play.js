// The page where a visitor plays against the search: keys, swipes and buttons in, pictures out.
import { BoardView } from "./board.js";
import { LOOKS } from "./facts.js";

const MOVES = ["up", "down", "left", "right"];
const STEPS = [[0, 1], [0, -1], [-1, 0], [1, 0]];
const KEYS = {
  ArrowUp: 0, ArrowDown: 1, ArrowLeft: 2, ArrowRight: 3, w: 0, s: 1, a: 2, d: 3,
};
const DEATHS = ["", "left the board", "ran into itself", "ran into another snake",
  "lost a head-to-head", "starved", "died in a hazard"];
const STRENGTHS = {
  gentle: { seconds: 0, positions: 12 },
  club: { seconds: 0, positions: 400 },
  champion: { seconds: 0.1, positions: 0 },
};
const PACE = 450; // milliseconds a turn when the game does not wait

const $ = (id) => document.getElementById(id);
const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
const state = { view: null, game: null, frame: null, over: false, busy: false, wish: null };

/** A frame of board.js from the game's numbers. */
function readFrame(words) {
  let at = 0;
  const next = () => words[at++];
  const points = (count) => Array.from({ length: count }, () => [next(), next()]);
  const [turn, width, height, count] = [next(), next(), next(), next()];
  const snakes = Array.from({ length: count }, () => {
    const [cause, , diedOn, health, length] = [next(), next(), next(), next(), next()];
    return { cause, health, length, death: cause ? { turn: diedOn } : null, body: points(length) };
  });
  const food = points(next());
  const depths = new Map();
  for (let runs = next(); runs > 0; runs -= 1) {
    const [x, y, layers] = [next(), next(), next()];
    depths.set(`${x},${y}`, [x, y, (depths.get(`${x},${y}`)?.[2] ?? 0) + layers]);
  }
  const hazards = [...depths.values()].filter(([x, y]) => x >= 0 && y >= 0 && x < width && y < height);
  return { turn, width, height, snakes, food, hazards };
}

const watching = () => $("who").value === "watch";
const setting = () => {
  const [width, height] = $("size").value.split("x").map(Number);
  const ruleset = $("ruleset").value;
  return {
    width, height, ruleset, snakes: Number($("rivals").value) + 1,
    seed: crypto.getRandomValues(new Uint32Array(1))[0] >>> 1,
    map: ruleset.endsWith("constrictor") ? "empty" : ruleset === "royale" ? "royale" : "standard",
  };
};

function begin() {
  state.game = setting();
  state.over = false;
  state.wish = null;
  state.busy = true;
  state.frame = null;
  worker.postMessage({ start: state.game });
}

/** The way the visitor's snake faces: nothing pressed means straight on. */
function straightOn() {
  const [head, neck] = state.frame.snakes[0].body;
  const { width, height } = state.game;
  const facing = STEPS.findIndex(([dx, dy]) =>
    (neck[0] + dx + width) % width === head[0] && (neck[1] + dy + height) % height === head[1]);
  return facing < 0 ? 0 : facing;
}

function step(move) {
  if (state.busy || state.over || !state.frame) return;
  state.busy = true;
  const human = watching() || state.frame.snakes[0].death ? {} : { 0: move ?? straightOn() };
  state.wish = null;
  worker.postMessage({ turn: { moves: human, ...STRENGTHS[$("strength").value] } });
}

function press(move) {
  if (state.over) return;
  if (waits()) step(move);
  else state.wish = move;
}

/** Whether the game stands still until the visitor moves. */
const waits = () =>
  $("pace").value === "wait" && !watching() && state.frame && !state.frame.snakes[0].death;

function show(frame, thought) {
  if (!state.frame) {
    state.game.snakes = frame.snakes.map((_, seat) => ({ ...LOOKS[seat], id: String(seat) }));
    state.view = new BoardView($("board"), state.game);
  }
  state.frame = frame;
  state.view.draw(frame);
  $("snakes").replaceChildren(...frame.snakes.map((snake, seat) => line(snake, seat, thought[seat])));
  $("turn").textContent = `Turn ${frame.turn}`;
}

function line(snake, seat, thought) {
  const item = document.createElement("li");
  const dot = document.createElement("span");
  dot.className = "dot";
  dot.style.background = LOOKS[seat].color;
  const you = seat === 0 && !watching();
  const name = you ? "You" : `Champion${state.game.snakes.length > 2 ? ` ${seat}` : ""}`;
  const seen = thought
    ? `, looked ${thought.depth} turns ahead, ${thought.valued.toLocaleString("en")} positions` : "";
  const fate = snake.death ? DEATHS[snake.cause] : `length ${snake.length}, health ${snake.health}${seen}`;
  item.append(dot, `${name}: ${fate}`);
  return item;
}

function verdict(frame) {
  const left = frame.snakes.flatMap((snake, seat) => (snake.death ? [] : [seat]));
  if (watching()) return left.length ? `Snake ${left[0] + 1} won.` : "A draw.";
  if (!left.length) return frame.snakes.length > 1 ? "A draw." : "The end.";
  return left[0] === 0 ? "You won!" : "The champion won.";
}

worker.onmessage = ({ data }) => {
  state.busy = false;
  if (data.error) {
    $("status").textContent = data.error;
    state.over = true;
    return;
  }
  const frame = readFrame(data.words);
  show(frame, data.thought);
  state.over = data.over;
  $("status").textContent = data.over ? `${verdict(frame)} Press Enter or “New game”.`
    : waits() ? "Your move: arrow keys, W A S D, a swipe or the buttons." : "";
  document.body.dataset.turn = String(frame.turn);
  document.body.dataset.over = String(data.over);
};
worker.onerror = (event) => {
  $("status").textContent = `The game did not load: ${event.message ?? "no WebAssembly here?"}`;
};

setInterval(() => {
  if (!waits()) step(state.wish);
}, PACE);

addEventListener("keydown", (event) => {
  if (event.target.matches("select, button") && event.key !== "Escape" && !(event.key in KEYS)) return;
  if (event.target.matches("select")) return;
  if (event.key === "Enter" && state.over) begin();
  const move = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (move === undefined) return;
  event.preventDefault();
  press(move);
});

let touched = null;
$("board").addEventListener("pointerdown", (event) => { touched = [event.clientX, event.clientY]; });
addEventListener("pointerup", (event) => {
  if (!touched) return;
  const [dx, dy] = [event.clientX - touched[0], event.clientY - touched[1]];
  touched = null;
  if (Math.max(Math.abs(dx), Math.abs(dy)) < 18) return;
  press(Math.abs(dx) > Math.abs(dy) ? (dx > 0 ? 3 : 2) : (dy > 0 ? 1 : 0));
});

MOVES.forEach((name, move) => $(name).addEventListener("click", () => press(move)));
$("new").addEventListener("click", begin);
for (const id of ["who", "size", "ruleset", "rivals"]) $(id).addEventListener("change", begin);
begin();
