// The page where a visitor plays against the search: keys, swipes and buttons in, pictures out.
import { BoardView } from "./board.js";
import "./copy.js";
import { CELLS_TO_LOGIT, LOOKS } from "./facts.js";

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
const REPLAY_PACE = 120;
const KEPT = 3; // keys pressed ahead
const JUDGE = 4000; // positions for each turn of a lost game
const LETTERS = "udlr-"; // the moves in a link; the dead make none
const CHOICES = ["size", "ruleset", "rivals", "strength", "who"];

const $ = (id) => document.getElementById(id);
const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
const state = {
  view: null, game: null, past: [], moves: [], keys: [], over: false, busy: false, replaying: null,
};
const now = () => state.past.at(-1);

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

/** Play `moves` of a game at once, and go on from there. */
function begin(game, moves = []) {
  Object.assign(state, { game, moves, past: [], keys: [], over: false, busy: true });
  worker.postMessage({ start: game, moves });
}

/** Go back to a turn of this game, which then waits. */
function goBack(turn) {
  if (turn < 0 || !now()) return;
  $("pace").value = "wait";
  begin(state.game, state.moves.slice(0, turn));
}

/** The address of this turn, which is all that another browser needs to come to it. */
function link() {
  const chosen = CHOICES.map((id) => [id, $(id).value]);
  const moves = state.moves.flat().map((move) => LETTERS[move]).join("");
  return `#${new URLSearchParams([...chosen, ["seed", state.game.seed], ["moves", moves]])}`;
}

/** Begin the game of the address, or a new one where it names none. */
function open() {
  const asked = new URLSearchParams(location.hash.slice(1));
  if (!asked.has("moves")) return begin(setting());
  for (const id of CHOICES) $(id).value = asked.get(id);
  const game = { ...setting(), seed: Number(asked.get("seed")) };
  const moves = [...asked.get("moves")].map((letter) => LETTERS.indexOf(letter));
  const damaged = CHOICES.some((id) => !$(id).value) || !Number.isInteger(game.seed) ||
    moves.includes(-1) || moves.length % game.snakes;
  if (damaged) return fail("This link is damaged; “New game” begins another.");
  const turns = Array.from({ length: moves.length / game.snakes }, (_, turn) =>
    moves.slice(turn * game.snakes, (turn + 1) * game.snakes));
  return begin(game, turns);
}

/** The way the visitor's snake faces; -1 before its first move. */
function facing() {
  const [head, neck] = now().snakes[0].body;
  const { width, height } = state.game;
  return STEPS.findIndex(([dx, dy]) =>
    (neck[0] + dx + width) % width === head[0] && (neck[1] + dy + height) % height === head[1]);
}

/** The next key that was pressed; one for the way back would kill, and is passed over. */
function nextKey() {
  let move;
  do move = state.keys.shift();
  while (move !== undefined && facing() >= 0 && move === (facing() ^ 1));
  return move;
}

/** Play a turn: by the next key, or, in a game that does not wait, straight on. */
function step() {
  if (state.busy || state.over || !now()) return;
  const steers = !watching() && !now().snakes[0].death;
  const move = steers ? nextKey() : undefined;
  if (move === undefined && waits()) return;
  state.busy = true;
  const moves = steers ? { 0: move ?? Math.max(0, facing()) } : {};
  worker.postMessage({ turn: { moves, ...STRENGTHS[$("strength").value] } });
}

function press(move) {
  if (state.keys.length < KEPT) state.keys.push(move);
  if (waits()) step();
}

/** Whether the game stands still until the visitor moves. */
const waits = () => $("pace").value === "wait" && !watching() && now() && !now().snakes[0].death;

function replay() {
  let turn = 0;
  clearInterval(state.replaying);
  state.replaying = setInterval(() => {
    state.view.draw(state.past[turn]);
    $("turn").textContent = `Turn ${turn}`;
    turn += 1;
    if (turn === state.past.length) clearInterval(state.replaying);
  }, REPLAY_PACE);
}

/** Name the move after which the visitor's chances fell most. */
function explain(judged) {
  const chances = (values) => values.map((value) =>
    (value === null ? 0 : 1 / (1 + Math.exp(-Math.max(-60, Math.min(60, value * CELLS_TO_LOGIT))))));
  const worst = judged.map(({ turn, values }) => {
    const [all, played] = [chances(values), state.moves[turn][0]];
    return { turn, played, best: all.indexOf(Math.max(...all)), after: all[played], all };
  }).reduce((a, b) => (b.all[b.best] - b.after >= a.all[a.best] - a.after ? b : a));
  const percent = (share) => `about ${Math.round(100 * share)} %`;
  $("lost").hidden = false;
  $("why").textContent = `Turn ${worst.turn} cost most: ${MOVES[worst.played]} left you ` +
    `${percent(worst.after)}, ${MOVES[worst.best]} would have kept ${percent(worst.all[worst.best])}.`;
  $("again").textContent = `Try again from turn ${worst.turn}`;
  $("again").onclick = () => goBack(worst.turn);
}

function fail(error) {
  $("status").textContent = error;
  state.over = true;
}

function show(thought) {
  const frame = now();
  clearInterval(state.replaying);
  state.view.draw(frame);
  $("undo").disabled = !state.moves.length;
  $("replay").hidden = !state.over;
  $("lost").hidden = true;
  $("copy").dataset.copy = link();
  $("snakes").replaceChildren(...frame.snakes.map((snake, seat) => line(snake, seat, thought[seat])));
  $("turn").textContent = `Turn ${frame.turn}`;
}

function line(snake, seat, thought) {
  const item = document.createElement("li");
  const dot = document.createElement("span");
  dot.className = "dot";
  dot.style.background = LOOKS[seat].color;
  const you = seat === 0 && !watching();
  const name = you ? "You" : `Champion${state.game.snakes > 2 ? ` ${seat}` : ""}`;
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
  if (data.judged) {
    if (state.over) explain(data.judged);
    return;
  }
  state.busy = false;
  if (data.error) {
    fail(data.error);
    return;
  }
  if (data.past) {
    state.past = data.past.map(readFrame);
    const snakes = now().snakes.map((_, seat) => ({ ...LOOKS[seat], id: String(seat) }));
    state.view = new BoardView($("board"), { ...state.game, snakes });
  } else {
    state.past.push(readFrame(data.words));
    state.moves.push(data.moves);
  }
  state.over = data.over;
  const frame = now();
  show(data.thought);
  const until = frame.snakes[0].death?.turn;
  if (data.over && until && !watching()) {
    const { game, moves } = state;
    worker.postMessage({ judge: { start: game, moves, seat: 0, until, positions: JUDGE } });
  }
  $("status").textContent = data.over ? `${verdict(frame)} Press Enter or “New game”.`
    : waits() ? "Your move: arrow keys, W A S D, a swipe or the buttons." : "";
  document.body.dataset.turn = String(frame.turn);
  document.body.dataset.over = String(data.over);
  if (waits()) step();
};
worker.onerror = (event) => {
  $("status").textContent = `The game did not load: ${event.message ?? "no WebAssembly here?"}`;
};

setInterval(() => {
  if (!waits()) step();
}, PACE);

addEventListener("keydown", (event) => {
  if (event.target.matches("select, button") && event.key !== "Escape" && !(event.key in KEYS)) return;
  if (event.target.matches("select")) return;
  if (event.key === "Enter" && state.over) begin(setting());
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
$("new").addEventListener("click", () => begin(setting()));
$("undo").addEventListener("click", () => goBack(state.moves.length - 1));
$("replay").addEventListener("click", replay);
for (const id of ["who", "size", "ruleset", "rivals"]) {
  $(id).addEventListener("change", () => begin(setting()));
}
addEventListener("hashchange", open);
open();
