// The page where a visitor plays against the search: keys, swipes and buttons in, pictures out.
import { BoardView } from "./board.js";
import "./copy.js";
import { CALIBRATION, LEARNED_RULES, LOOKS, MISTAKES } from "./facts.js";

const MOVES = ["up", "down", "left", "right"];
const STEPS = [[0, 1], [0, -1], [-1, 0], [1, 0]];
const KEYS = {
  ArrowUp: 0, ArrowDown: 1, ArrowLeft: 2, ArrowRight: 3, w: 0, s: 1, a: 2, d: 3,
};
const DEATHS = ["", "left the board", "ran into itself", "ran into another snake",
  "lost a head-to-head", "starved", "died in a hazard"];
const PLAYERS = {
  champion: { name: "Champion", seconds: 0.1, positions: 0 },
  club: { name: "Champion (club)", seconds: 0, positions: 400 },
  gentle: { name: "Champion (gentle)", seconds: 0, positions: 12 },
  policy: { name: "Policy", policy: true },
  territory: { name: "Territory", named: "territory" },
  hunter: { name: "Hunter", named: "hunter" },
  cautious: { name: "Cautious", named: "cautious" },
  hungry: { name: "Hungry", named: "hungry" },
};
const MIXED = ["champion", "policy", "territory"];
const PACE = 450; // milliseconds a turn when the game does not wait
const REPLAY_PACE = 120;
const GLIDE = 110; // milliseconds from cell to cell
const WEIGHED = 5; // moves of a lost game that are played on from
const KEPT = 3; // keys pressed ahead
const LETTERS = "udlr-"; // the moves in a link; the dead make none
const CHOICES = ["size", "ruleset", "rivals", "strength", "who"];

const $ = (id) => document.getElementById(id);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const roomy = matchMedia("(min-width: 52rem)");
const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
const state = {
  view: null, game: null, past: [], moves: [], keys: [], over: false, busy: false, replaying: null,
  place: 0, looks: new Map(), thought: {},
};
const now = () => state.past.at(-1);
const atEnd = () => state.place === state.past.length - 1;

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
const kindOf = (seat) =>
  ($("strength").value === "mixed" ? MIXED[(seat + 2) % 3] : $("strength").value);
const players = () => Object.fromEntries(LOOKS.map((_, seat) => [seat, PLAYERS[kindOf(seat)]]));
const isYou = (seat) => seat === 0 && !watching();
function nameOf(seat) {
  if (isYou(seat)) return "You";
  const alike = state.game.snakes > (watching() ? 1 : 2) && $("strength").value !== "mixed";
  return PLAYERS[kindOf(seat)].name + (alike ? ` ${watching() ? seat + 1 : seat}` : "");
}

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
  clearInterval(state.replaying);
  const learned = LOOKS.slice(0, game.snakes).some((_, seat) => !isYou(seat) && kindOf(seat) === "policy");
  if (learned && !LEARNED_RULES.includes(game.ruleset)) {
    fail(`The policy has not learned ${game.ruleset}: choose other rules or another rival.`);
    return;
  }
  Object.assign(state, { game, moves, past: [], keys: [], over: false, busy: true, looks: new Map() });
  worker.postMessage({ start: game, moves });
}

/** Go back to a turn of this game, which then waits. */
function goBack(turn) {
  if (turn < 0 || !now()) return;
  $("pace").value = "wait";
  begin(state.game, state.moves.slice(0, turn));
}

/** The address of a turn, which is all that another browser needs to come to it. */
function link(turn) {
  const chosen = CHOICES.map((id) => [id, $(id).value]);
  const moves = state.moves.slice(0, turn).flat().map((move) => LETTERS[move]).join("");
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
  if (state.busy || state.over || !now() || !atEnd()) return;
  const steers = !watching() && !now().snakes[0].death;
  const move = steers ? nextKey() : undefined;
  if (move === undefined && waits()) return;
  state.busy = true;
  const moves = steers ? { 0: move ?? Math.max(0, facing()) } : {};
  worker.postMessage({ turn: { moves, players: players() } });
}

/** A key for the game; on a turn that is past, the game goes on from there. */
function press(move) {
  if (now() && !atEnd()) goBack(state.place);
  if (state.keys.length < KEPT) state.keys.push(move);
  if (waits()) step();
}

/** Whether the game stands still until the visitor moves. */
const waits = () => $("pace").value === "wait" && !watching() && now() && !now().snakes[0].death;

function replay() {
  clearInterval(state.replaying);
  go(0);
  state.replaying = setInterval(() => {
    go(state.place + 1);
    if (atEnd()) clearInterval(state.replaying);
  }, REPLAY_PACE);
}

// --- what the champion thinks -------------------------------------------------------------------

/** How likely each living snake is to win: battlesnake_heuristics/analysis/win_probability.py. */
function chances({ seen, learned }, turn) {
  const { weights, far, late, decided, sure, least } = CALIBRATION;
  const seats = Object.keys(seen);
  const [near, nearLate, over] = weights[learned ? "learned" : "by hand"][Math.min(3, Math.max(2, seats.length))];
  const values = seats.map((seat) => Math.max(...seen[seat].values.filter((one) => one !== null)));
  const won = seats.length === 2 && Math.max(...values) > sure;
  const lost = values.map((value) => value < -sure || (won && value < sure));
  const odds = values.map((value, i) => {
    if (lost[i]) return lost.includes(false) ? 0 : 1;
    const cut = 2 * Math.tanh(value / far);
    return Math.exp(near * cut + (nearLate * cut * Math.min(turn, late)) / late +
      over * ((value > decided) - (value < -decided)));
  });
  const sum = (numbers) => numbers.reduce((total, one) => total + one, 0);
  const shares = odds.map((share) => Math.max(share, least * sum(odds)));
  return Object.fromEntries(seats.map((seat, i) => [seat, shares[i] / sum(shares)]));
}

/** What is not proved is about so. */
const percent = (share) => `${share % 1 ? "about " : ""}${Math.round(100 * share)} %`;

/** The bar of chances of the turn that is shown, as far as it is known. */
function tellChances() {
  const look = state.looks.get(state.place);
  const bar = $("chances");
  bar.hidden = $("sight").value === "nothing";
  if (bar.hidden || !look || !Object.keys(look.seen).length) return;
  const shares = chances(look, state.place);
  const words = Object.entries(shares).map(([seat, share]) => `${nameOf(Number(seat))} ${percent(share)}`);
  bar.setAttribute("aria-label", `The champion's view of who wins: ${words.join(", ")}`);
  bar.replaceChildren(...Object.entries(shares).map(([seat, share], i) => {
    const part = document.createElement("i");
    part.style.width = `${100 * share}%`;
    part.style.background = LOOKS[seat].color;
    part.title = words[i];
    part.textContent = share > 0.17 ? percent(share).replace("about", "≈") : "";
    return part;
  }));
}

/** The frame, with the path that the first rival means to take where one wants to see it. */
function withPath(frame) {
  const look = $("sight").value === "paths" ? state.looks.get(state.place) : null;
  const rival = frame.snakes.findIndex(({ death }, seat) => !death && !isYou(seat));
  state.view.lined = rival;
  if (!look?.seen[rival]) return frame;
  const line = Object.fromEntries(Object.entries(look.seen[rival].line)
    .map(([seat, moves]) => [seat, moves.map((move) => MOVES[move])]));
  const next = { line, scores: {}, reasons: [] };
  return { ...frame, snakes: frame.snakes.map((snake, seat) => (seat === rival ? { ...snake, next } : snake)) };
}

/** Have those moves weighed after which the visitor's chances fell most. */
function weigh(judged) {
  const shares = judged.map(({ turn, look }) => chances(look, turn)[0]);
  const falls = judged.map(({ turn, look }, i) => {
    const [played, best] = [state.moves[turn][0], look.seen[0].move];
    return { turn, played, best, before: shares[i], after: shares[i + 1] ?? 0 };
  });
  const avoidable = falls.filter(({ played, best }) => played !== best)
    .sort((a, b) => b.before - b.after - (a.before - a.after)).slice(0, WEIGHED);
  if (!avoidable.length) explain(null);
  else worker.postMessage({ weigh: { start: state.game, moves: state.moves, falls: avoidable } });
}

/** Name the move that lost the game. */
function explain(worst) {
  const { mistake, rescue } = MISTAKES;
  const found = worst && worst.before >= rescue && worst.before - worst.after >= mistake;
  $("lost").hidden = false;
  $("again").hidden = !found;
  if (!found) {
    $("why").textContent = "No one move of your last turns lost it.";
    return;
  }
  const [before, after] = [worst.before, worst.after].map((share) => Math.round(100 * share));
  $("why").textContent = `Turn ${worst.turn} cost most: ${MOVES[worst.played]} left you about ` +
    `${after}\u00a0%, ${MOVES[worst.best]} would have kept about ${before}\u00a0%.`;
  $("again").textContent = `Try again from turn ${worst.turn}`;
  $("again").onclick = () => goBack(worst.turn);
}

// --- showing ------------------------------------------------------------------------------------

function fail(error) {
  $("status").textContent = error;
  state.over = true;
}

/** Show a turn of the game; where the one before is given, the snakes glide. */
function go(place, before = null) {
  state.place = place;
  const frame = state.past[place];
  const began = performance.now();
  const glide = (time) => {
    if (state.past[state.place] !== frame) return;
    const share = before && !calm.matches ? Math.min(1, Math.max(0, (time - began) / GLIDE)) : 1;
    document.body.dataset.still = String(share === 1);
    if (share < 1) state.view.draw(frame, before, share);
    else state.view.draw(withPath(frame));
    if (share < 1) requestAnimationFrame(glide);
  };
  glide(began);
  $("turn").textContent = `Turn ${frame.turn}`;
  $("scrub").value = place;
  $("from").hidden = atEnd();
  $("copy").dataset.copy = link(place);
  $("snakes").replaceChildren(...frame.snakes.map((snake, seat) => line(snake, seat, state.thought[seat])));
  tellChances();
}

/** Show the turn that is on. */
function show(before) {
  clearInterval(state.replaying);
  $("scrub").max = state.past.length - 1;
  for (const id of ["undo", "scrub", "gif"]) $(id).disabled = !state.moves.length;
  $("replay").hidden = !state.over;
  $("lost").hidden = true;
  go(state.past.length - 1, before);
}

function line(snake, seat, thought) {
  const item = document.createElement("li");
  const dot = document.createElement("span");
  dot.className = "dot";
  dot.style.background = LOOKS[seat].color;
  const seen = thought?.depth && atEnd()
    ? `, looked ${thought.depth} turns ahead, ${thought.valued.toLocaleString("en")} positions` : "";
  const fate = snake.death ? DEATHS[snake.cause] : `length ${snake.length}, health ${snake.health}${seen}`;
  item.append(dot, `${nameOf(seat)}: ${fate}`);
  return item;
}

function verdict(frame) {
  const left = frame.snakes.flatMap((snake, seat) => (snake.death ? [] : [seat]));
  if (!left.length) return frame.snakes.length > 1 ? "A draw." : "The end.";
  return `${nameOf(left[0])} won${isYou(left[0]) ? "!" : "."}`;
}

worker.onmessage = ({ data }) => {
  if (data.judged) {
    if (state.over) weigh(data.judged);
    return;
  }
  if (data.weighed) {
    if (state.over) explain(data.weighed);
    return;
  }
  if (data.look) {
    if (!state.past.length) return; // of the game before the one that begins
    state.looks.set(data.turn, data.look);
    if (data.turn !== state.place) return;
    tellChances();
    if (document.body.dataset.still === "true") state.view.draw(withPath(state.past[state.place]));
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
  Object.assign(state, { over: data.over, thought: data.thought });
  const frame = now();
  show(data.past ? null : state.past.at(-2));
  worker.postMessage({ look: state.past.length - 1 });
  const until = frame.snakes[0].death?.turn;
  if (data.over && until && !watching()) {
    worker.postMessage({ judge: { start: state.game, moves: state.moves, until } });
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

// --- listening ----------------------------------------------------------------------------------

/** Save the game up to the turn that is shown as a film. */
async function save() {
  const button = $("gif");
  button.disabled = true;
  try {
    const { film } = await import("./gif.js");
    const snakes = now().snakes.map((_, seat) => ({ ...LOOKS[seat], id: String(seat) }));
    const blob = await film(state.past.slice(0, state.place + 1), { ...state.game, snakes });
    const saved = document.createElement("a");
    saved.href = URL.createObjectURL(blob);
    saved.download = `battlesnake-${state.game.seed}-${state.place}.gif`;
    saved.click();
    setTimeout(() => URL.revokeObjectURL(saved.href), 60000);
  } catch (error) {
    $("status").textContent = `The film could not be made: ${error.message}`;
  }
  button.disabled = false;
}

addEventListener("keydown", (event) => {
  if (event.target.matches("select, button, summary") && event.key !== "Escape" && !(event.key in KEYS)) return;
  if (event.target.matches("select, input")) return;
  if (event.key === "Enter" && state.over) begin(setting());
  const move = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (move === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
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
$("from").addEventListener("click", () => goBack(state.place));
$("replay").addEventListener("click", replay);
$("gif").addEventListener("click", save);
$("sight").addEventListener("change", () => { if (now()) go(state.place); });
$("scrub").addEventListener("input", () => {
  clearInterval(state.replaying);
  go(Number($("scrub").value));
});
for (const id of ["who", "size", "ruleset", "rivals", "strength"]) {
  $(id).addEventListener("change", () => begin(setting()));
}
const unfold = () => { $("settings").open = roomy.matches; };
roomy.addEventListener("change", unfold);
addEventListener("hashchange", open);
unfold();
open();
