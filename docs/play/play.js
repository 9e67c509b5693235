// Script of the page on which a visitor plays against the search with keys, swipes or buttons.
import { $, BoardView, CAUSES, snakeItem, yourCause } from "./board.js";
import "./copy_button.js";
import { readFrame } from "./frames.js";
import { Graph } from "./graph.js";
import { LEARNED_RULES, LOOKS, MISTAKES } from "./facts.js";

const MOVES = ["up", "down", "left", "right"];
const ARROWS = "↑↓←→";
const STEPS = [[0, 1], [0, -1], [-1, 0], [1, 0]];
const KEYS = {
  ArrowUp: 0, ArrowDown: 1, ArrowLeft: 2, ArrowRight: 3, w: 0, s: 1, a: 2, d: 3,
};
const PLAYERS = {
  champion: { name: "Champion", seconds: 0.1, nodes: 0 },
  club: { name: "Champion (club)", seconds: 0, nodes: 400 },
  gentle: { name: "Champion (gentle)", seconds: 0, nodes: 12 },
  policy: { name: "Policy", policy: true },
  territory: { name: "Territory", builtin: "territory" },
  hunter: { name: "Hunter", builtin: "hunter" },
  cautious: { name: "Cautious", builtin: "cautious" },
  hungry: { name: "Hungry", builtin: "hungry" },
  "safe-random": { name: "Safe-random", builtin: "safe-random" },
  random: { name: "Random", builtin: "random" },
};
const MIXED = ["champion", "policy", "territory"];
// Duration of a turn in ms if the game does not wait for the visitor.
const TURN_MS = 450;
const REPLAY_TURN_MS = 120;
// Duration of an animated movement between two cells, in ms.
const GLIDE_MS = 110;
const MAX_QUEUED_KEYS = 3;
// Letters of the moves in a link; "-" for eliminated snakes.
const LETTERS = "udlr-";
const SETTINGS = ["size", "ruleset", "opponents", "strength", "who"];

const prefersReducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
const isWide = matchMedia("(min-width: 52rem)");
const graph = new Graph($("graph"));
const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
const state = {
  view: null, game: null, past: [], moves: [], keys: [], over: false, busy: false, replaying: null,
  index: 0, assessments: new Map(), requested: new Set(), decisions: {}, mistakes: null, reviewing: false,
  settings: null, rejection: "",
};
const current = () => state.past.at(-1);
const atEnd = () => state.index === state.past.length - 1;

const watching = () => $("who").value !== "play";
const isYou = (seat) => seat === 0 && !watching();
/** Returns the key in `PLAYERS` of the snake that plays a seat. */
function strengthOf(seat) {
  if (seat === 0 && $("who").value in PLAYERS) return $("who").value;
  return $("strength").value === "mixed" ? MIXED[(seat + 2) % 3] : $("strength").value;
}
const readSettings = () => Object.fromEntries(SETTINGS.map((id) => [id, $(id).value]));
const players = () => Object.fromEntries(LOOKS.map((_, seat) => [seat, PLAYERS[strengthOf(seat)]]));
const isLimited = () => state.game.view_radius !== null;
/** Returns the name of the snake that plays a seat, with a number if several seats have this name. */
function nameOf(seat) {
  if (isYou(seat)) return "You";
  const seats = [...Array(state.game.snakes).keys()];
  const equal = seats.filter((other) => !isYou(other) && strengthOf(other) === strengthOf(seat));
  return PLAYERS[strengthOf(seat)].name + (equal.length > 1 ? ` ${equal.indexOf(seat) + 1}` : "");
}

const newGame = () => {
  const [width, height] = $("size").value.split("x").map(Number);
  const isBlackout = $("ruleset").value === "blackout";
  const ruleset = isBlackout ? "standard" : $("ruleset").value;
  return {
    width, height, ruleset, view_radius: isBlackout ? 5 : null, snakes: Number($("opponents").value) + 1,
    seed: crypto.getRandomValues(new Uint32Array(1))[0] >>> 1,
    map: ruleset.endsWith("constrictor") ? "empty" : ruleset === "royale" ? "royale" : "standard",
  };
};

/** Starts a game and plays the given moves of its first turns. */
function startGame(game, moves = []) {
  clearInterval(state.replaying);
  const strengths = LOOKS.slice(0, game.snakes).flatMap((_, seat) => (isYou(seat) ? [] : [strengthOf(seat)]));
  if (game.view_radius !== null && !strengths.every((strength) => PLAYERS[strength].builtin)) {
    reject("With a view radius, only rule-based snakes play here: choose another opponent.");
    return;
  }
  if (strengths.includes("policy") && !LEARNED_RULES.includes(game.ruleset)) {
    reject(`The policy was not trained for ${game.ruleset}: choose other rules or another opponent.`);
    return;
  }
  Object.assign(state, {
    game, moves, past: [], keys: [], over: false, busy: true, assessments: new Map(), requested: new Set(),
    mistakes: null, reviewing: false, settings: readSettings(), rejection: "",
  });
  worker.postMessage({ start: game, moves });
}

/** Restores the settings of the shown game, and shows why the visitor's settings were rejected. */
function reject(reason) {
  for (const id of SETTINGS) $(id).value = state.settings[id];
  state.rejection = reason;
  $("status").textContent = reason;
}

/** Shows an earlier turn of the game and waits for the move of the visitor. */
function goBack(turn) {
  if (turn < 0 || !current()) return;
  $("pace").value = "wait";
  startGame(state.game, state.moves.slice(0, turn));
}

/** Returns the address fragment that reproduces the game up to a turn. */
function linkTo(turn) {
  const moves = state.moves.slice(0, turn).flat().map((move) => LETTERS[move]).join("");
  return `#${new URLSearchParams({ ...state.settings, seed: state.game.seed, moves })}`;
}

/** Starts the game that the address fragment describes, or a new game. */
function openAddress() {
  const params = new URLSearchParams(location.hash.slice(1));
  if (!params.has("moves")) return startGame(newGame());
  for (const id of SETTINGS) $(id).value = params.get(id);
  const game = { ...newGame(), seed: Number(params.get("seed")) };
  const moves = [...params.get("moves")].map((letter) => LETTERS.indexOf(letter));
  const damaged = SETTINGS.some((id) => !$(id).value) || !Number.isInteger(game.seed) ||
    moves.includes(-1) || moves.length % game.snakes;
  if (damaged) return reject("This link is damaged; press “New game”.");
  const turns = Array.from({ length: moves.length / game.snakes }, (_, turn) =>
    moves.slice(turn * game.snakes, (turn + 1) * game.snakes));
  return startGame(game, turns);
}

/** Returns the direction of the visitor's snake, or -1 before the first move. */
function facing() {
  const [head, neck] = current().snakes[0].body;
  const { width, height } = state.game;
  return STEPS.findIndex(([dx, dy]) =>
    (neck[0] + dx + width) % width === head[0] && (neck[1] + dy + height) % height === head[1]);
}

/** Returns the next queued direction. Directions into the neck of the snake are skipped. */
function nextKey() {
  let move;
  do move = state.keys.shift();
  while (move !== undefined && facing() >= 0 && move === (facing() ^ 1));
  return move;
}

/** Plays a turn with the next queued direction. A game that does not wait continues straight ahead. */
function step() {
  if (state.busy || state.over || state.reviewing || !current() || !atEnd()) return;
  const steers = !watching() && !current().snakes[0].death;
  const move = steers ? nextKey() : undefined;
  if (move === undefined && waits()) return;
  state.busy = true;
  const moves = steers ? { 0: move ?? Math.max(0, facing()) } : {};
  worker.postMessage({ turn: { moves, players: players() } });
}

/** Queues a direction. If an earlier turn is shown, the game resumes from that turn. */
function press(move) {
  state.rejection = "";
  if (current() && !atEnd()) goBack(state.index);
  if (state.keys.length < MAX_QUEUED_KEYS) state.keys.push(move);
  if (waits()) step();
}

/** Returns whether the game waits for the move of the visitor. */
const waits = () => $("pace").value === "wait" && !watching() && current() && !current().snakes[0].death;

function replay() {
  clearInterval(state.replaying);
  go(0);
  state.replaying = setInterval(() => {
    go(state.index + 1);
    if (atEnd()) clearInterval(state.replaying);
  }, REPLAY_TURN_MS);
}

/** Formats a probability. A value that is not proven starts with "about". */
const formatPercent = (value) => `${value % 1 ? "about " : ""}${Math.round(100 * value)}%`;

/** Shows the win probabilities of the current turn, and requests them if they are missing. */
function showWinProbabilities() {
  const bar = $("win-probabilities");
  bar.hidden = $("sight").value === "nothing" || isLimited();
  if (isLimited()) return; // The search knows hidden cells.
  const assessment = state.assessments.get(state.index);
  if (!assessment) {
    bar.replaceChildren();
    bar.setAttribute("aria-label", "Win probabilities: computing");
    if (!state.requested.has(state.index)) worker.postMessage({ assess: state.index });
    state.requested.add(state.index);
    return;
  }
  const probabilities = Object.fromEntries(Object.entries(assessment)
    .map(([seat, { winProbability }]) => [seat, winProbability]));
  const labels = Object.entries(probabilities)
    .map(([seat, value]) => `${nameOf(Number(seat))} ${formatPercent(value)}`);
  bar.setAttribute("aria-label", `Win probabilities by the champion: ${labels.join(", ")}`);
  bar.replaceChildren(...Object.entries(probabilities).map(([seat, value], i) => {
    const part = document.createElement("i");
    part.style.width = `${100 * value}%`;
    part.style.background = LOOKS[seat].color;
    part.title = labels[i];
    part.textContent = value > 0.17 ? formatPercent(value).replace("about", "≈") : "";
    return part;
  }));
}

/**
 * Adds the expected moves of a snake to a frame.
 * After a mistake, the line shows the better moves. Otherwise, it shows the first opponent's moves if lines are on.
 */
function withLine(frame) {
  const mistake = state.mistakes?.find(({ turn }) => turn === state.index);
  const assessment = mistake || $("sight").value === "lines" ? state.assessments.get(state.index) : null;
  const shown = mistake ? 0 : frame.snakes.findIndex(({ death }, seat) => !death && !isYou(seat));
  state.view.defaultLineSnake = shown;
  const best = assessment?.[shown]?.candidates.find(({ move }) => !mistake || move === mistake.better);
  if (!best) return frame;
  const line = Object.fromEntries(Object.entries(best.line)
    .map(([seat, moves]) => [seat, moves.map((move) => MOVES[move])]));
  const next = { line, scores: {}, reasons: [] };
  return { ...frame, snakes: frame.snakes.map((snake, seat) => (seat === shown ? { ...snake, next } : snake)) };
}

/** Starts the review of the visitor's moves (see analysis/mistakes.py). */
function review() {
  state.reviewing = true;
  $("why").textContent = "Analyzing your moves …";
  $("review").hidden = false;
  worker.postMessage({ review: true });
}

/** Formats a score as `game coach` does: a tie rounds to the even percentage. */
function toPercent(score) {
  const percent = Math.round(100 * score);
  return (100 * score) % 1 === 0.5 && percent % 2 ? percent - 1 : percent;
}

/** Displays the mistakes of the visitor, and the win probabilities of the game as a graph. */
function showReview() {
  const [worst] = state.mistakes;
  const lost = current().snakes[0].death;
  $("again").hidden = !worst;
  $("why").textContent = !worst ? `No single move ${lost ? "lost the game" : "was a mistake"}.`
    : `Your costliest move was on turn ${worst.turn}: ${MOVES[worst.move]} wins about ` +
      `${toPercent(worst.after)}%, ${MOVES[worst.better]} would win about ${toPercent(worst.before)}%.`;
  if (worst) {
    $("again").textContent = `Try again from turn ${worst.turn}`;
    $("again").onclick = () => goBack(worst.turn);
  }
  const points = [...state.assessments].filter(([, one]) => one[0]).sort(([a], [b]) => a - b)
    .map(([turn, one]) => [turn, one[0].winProbability]);
  points.push([lost?.turn ?? current().turn, result()]);
  graph.draw(Math.max(1, state.moves.length), [{ points, color: LOOKS[0].color }],
    state.mistakes.map(({ turn }) => ({ class: "blunder", x: turn })));
  $("mistakes").replaceChildren(...state.mistakes.toSorted((a, b) => a.turn - b.turn).map((mistake) => {
    const { turn, move, better, before, after } = mistake;
    const line = state.assessments.get(turn)[0].candidates.find((one) => one.move === better)?.line[0] ?? [better];
    const button = document.createElement("button");
    button.className = "mistake";
    button.textContent = `Turn ${turn}: ${ARROWS[move]}${before - after >= MISTAKES.blunder ? "??" : "?"} about ` +
      `${toPercent(before)} → ${toPercent(after)}%, better ${line.map((one) => ARROWS[one]).join("")}`;
    button.addEventListener("click", () => {
      go(turn);
      $("board").scrollIntoView({ block: "nearest" });
    });
    const item = document.createElement("li");
    item.append(button);
    return item;
  }));
}

/** Returns the visitor's result: 1 for a win, 0.5 for a draw and 0 for a loss. */
function result() {
  const [you, ...others] = current().snakes;
  if (!you.death) return 1;
  return others.every(({ death }) => death?.turn === you.death.turn) ? 0.5 : 0;
}

/** Returns a frame as the visitor sees it. */
const seen = (index) => state.view.limit(state.past[index], state.past[index - 1]);

/** Shows a turn. The movement from the frame `previous`, if given, is animated. */
function go(index, previous = null) {
  state.index = index;
  const frame = seen(index);
  const started = performance.now();
  const glide = (time) => {
    if (seen(state.index) !== frame) return;
    const fraction = previous && !prefersReducedMotion.matches ? Math.min(1, Math.max(0, (time - started) / GLIDE_MS)) : 1;
    document.body.dataset.still = String(fraction === 1);
    if (fraction < 1) state.view.draw(frame, previous, fraction);
    else state.view.draw(withLine(frame));
    if (fraction < 1) requestAnimationFrame(glide);
  };
  glide(started);
  $("turn").textContent = `Turn ${frame.turn}`;
  $("scrub").value = index;
  $("from").disabled = atEnd();
  $("status").textContent = statusText();
  graph.moveCursor(index);
  $("copy").dataset.copy = $("embed").dataset.copy = linkTo(index);
  $("snakes").replaceChildren(...frame.snakes.map((snake, seat) => playerItem(snake, seat, state.decisions[seat])));
  showWinProbabilities();
}

/** Shows the current turn. */
function show(previous) {
  clearInterval(state.replaying);
  $("scrub").max = state.past.length - 1;
  for (const id of ["undo", "scrub", "gif"]) $(id).disabled = !state.moves.length;
  $("replay").disabled = !state.over;
  $("review").hidden = !state.mistakes && !state.reviewing;
  $("reviewed").disabled = !state.over || watching() || isLimited();
  go(state.past.length - 1, previous);
}

function playerItem(snake, seat, decision) {
  const search = decision?.depth && atEnd()
    ? `, searched ${decision.depth} turn${decision.depth === 1 ? "" : "s"} ahead, ${decision.leafEvaluations.toLocaleString("en")} positions` : "";
  const causeOf = isYou(seat) ? yourCause : (cause) => CAUSES[cause];
  const fate = snake.death ? causeOf(snake.death.cause) : snake.health === null ? `${snake.body.length} visible segments`
    : `length ${snake.length}, health ${snake.health}${search}`;
  return snakeItem(LOOKS[seat].color, `${nameOf(seat)}: ${fate}`);
}

function verdict(frame) {
  const alive = frame.snakes.flatMap((snake, seat) => (snake.death ? [] : [seat]));
  if (!alive.length) return frame.snakes.length > 1 ? "Draw." : "Game over.";
  return `${nameOf(alive[0])} won${isYou(alive[0]) ? "!" : "."}`;
}

/** Returns a text of one line, so that the buttons below the text keep their place. */
function statusText() {
  if (!atEnd()) return `Turn ${current().turn - state.past.length + 1 + state.index} of ${current().turn}: a direction plays on from here.`;
  const { death } = current().snakes[0];
  const cause = death && !watching() ? `you ${yourCause(death.cause)}.` : "";
  const hint = isWide.matches ? " Enter: new game." : "";
  if (state.over) return `${cause && `Y${cause.slice(1)} `}${verdict(current())}${hint}`;
  if (state.rejection) return state.rejection;
  return cause ? `You are out: ${cause}` : (waits() ? `Your move: arrow keys, ${isWide.matches ? "W A S D, a " : ""}swipe or buttons.` : "");
}

/** Processes an assessment or a part of a review; returns whether `data` was one. */
function receiveAnalysis(data) {
  // Without past turns, the message belongs to the previous game.
  if (data.progress !== undefined) {
    if (state.reviewing) $("why").textContent = `Analyzing your moves: ${Math.round(100 * data.progress)}% …`;
  } else if (data.reviewed) {
    if (!state.reviewing) return true;
    Object.assign(state, { reviewing: false, mistakes: data.reviewed });
    for (const [turn, assessment] of data.assessments) state.assessments.set(turn, assessment);
    showReview();
    showWinProbabilities();
  } else if (data.assessment) {
    if (!state.requested.has(data.turn) && !state.reviewing) return true;
    if (!state.mistakes) state.assessments.set(data.turn, data.assessment);
    if (data.turn !== state.index) return true;
    showWinProbabilities();
    if (document.body.dataset.still === "true") state.view.draw(withLine(seen(state.index)));
  } else return false;
  return true;
}

worker.onmessage = ({ data }) => {
  if (receiveAnalysis(data)) return;
  if (data.moves && !current()) return; // The turn belongs to the previous game.
  state.busy = false;
  if (data.error) {
    $("status").textContent = data.error;
    Object.assign(state, { over: true, reviewing: false });
    return;
  }
  if (data.past) {
    state.past = data.past.map(readFrame);
    const snakes = current().snakes.map((_, seat) => ({ ...LOOKS[seat], id: String(seat) }));
    state.view = new BoardView($("board"), { ...state.game, snakes });
    if (isLimited() && !watching()) state.view.select(0);
  } else {
    state.past.push(readFrame(data.words));
    state.moves.push(data.moves);
  }
  Object.assign(state, { over: data.over, decisions: data.decisions });
  const frame = current();
  show(data.past ? null : seen(state.past.length - 2));
  document.body.dataset.turn = String(frame.turn);
  document.body.dataset.over = String(data.over);
  // The review starts when the visitor is eliminated: the rest of the game does not change it.
  if (frame.snakes[0].death && frame.snakes.length > 1 && !watching() && !isLimited() && !state.mistakes) review();
  else if (waits()) step();
};
worker.onerror = (event) => {
  $("status").textContent = `The game could not be loaded: ${event.message ?? "this browser may lack WebAssembly"}`;
};

setInterval(() => {
  if (!waits()) step();
}, TURN_MS);

/** Saves the game up to the current turn as an animated GIF. */
async function save() {
  const button = $("gif");
  button.disabled = true;
  try {
    const { saveGif } = await import("./gif.js");
    const snakes = current().snakes.map((_, seat) => ({ ...LOOKS[seat], id: String(seat) }));
    const name = `battlesnake-${state.game.seed}-${state.index}.gif`;
    await saveGif(state.past.slice(0, state.index + 1).map((_, index) => seen(index)), { ...state.game, snakes }, name);
  } catch (error) {
    $("status").textContent = `The GIF could not be created: ${error.message}`;
  }
  button.disabled = false;
}

addEventListener("keydown", (event) => {
  if (event.target.matches("select, button, summary") && event.key !== "Escape" && !(event.key in KEYS)) return;
  if (event.target.matches("select, input")) return;
  if (event.key === "Enter" && state.over) startGame(newGame());
  const move = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (move === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  press(move);
});

// The documentation's start page forwards its keys.
addEventListener("message", ({ data, origin, source }) => {
  if (origin === location.origin && source === parent && data.key in KEYS) press(KEYS[data.key]);
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
$("new").addEventListener("click", () => startGame(newGame()));
$("undo").addEventListener("click", () => goBack(state.moves.length - 1));
$("from").addEventListener("click", () => goBack(state.index));
$("replay").addEventListener("click", replay);
$("reviewed").addEventListener("click", review);
$("gif").addEventListener("click", save);
$("sight").addEventListener("change", () => { if (current()) go(state.index); });
function seek(turn) {
  clearInterval(state.replaying);
  go(turn);
}
$("scrub").addEventListener("input", () => seek(Number($("scrub").value)));
$("graph").addEventListener("click", (event) => {
  if (state.mistakes) seek(Math.min(Math.max(graph.turnAt(event), 0), state.moves.length));
});
for (const id of ["who", "size", "ruleset", "opponents", "strength"]) {
  $(id).addEventListener("change", () => startGame(newGame()));
}
const unfoldSettings = () => { $("settings").open = isWide.matches; };
isWide.addEventListener("change", unfoldSettings);
addEventListener("hashchange", openAddress);
for (const name of Object.keys(PLAYERS)) $("who").add(new Option(name));
unfoldSettings();
state.settings = readSettings();
openAddress();
