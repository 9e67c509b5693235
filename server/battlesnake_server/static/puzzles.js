// The puzzles page: the visitor solves positions with exactly one correct move.

import { $, BoardView, snakeItem, yourCause } from "./board.js";
import { ARROWS } from "./decision.js";
import { readJson } from "./requests.js";

const KEYS = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" };
const puzzles = JSON.parse($("puzzles").textContent);
const FRAME_MS = 300; // duration of a turn that is played out
const MAX_TURNS = 30; // maximum number of turns that are played out
const RATING_STEP = 32; // largest change of the visitor's rating per puzzle (the K factor of Elo)
let view = null;
let playing = null; // timer of the turns that are played out
let numReplies = 0; // number of answers and of shown puzzles; older turns are not played out
let rating;
let firstAnswers; // name of the puzzle -> whether the first move was correct
let index = 0;

/** Loads the rating and the answers, which the browser stores for all of its tabs. */
function loadAnswers() {
  rating = Number(localStorage.getItem("puzzle-rating")) || 1200;
  firstAnswers = new Map(JSON.parse(localStorage.getItem("puzzle-answers") ?? "[]"));
}

/** Returns the rating of a puzzle: 1000, 1400 or 1800 for grade 1, 2 or 3. */
function ratingOf({ note }) {
  const [, grade] = note.match(/grade (\d)/) ?? [0, 2];
  return 600 + 400 * grade;
}

function show() {
  const puzzle = puzzles[index];
  numReplies += 1;
  clearInterval(playing);
  view = new BoardView($("board"), puzzle, { coordinates: true });
  view.select(puzzle.you);
  view.draw(puzzle.frame);
  $("name").textContent = `Puzzle ${index + 1}`;
  $("snakes").replaceChildren(...puzzle.snakes.flatMap((_, seat) => livingItem(puzzle, seat)));
  $("note").textContent = `Rated ${ratingOf(puzzle)}; from ${puzzle.name.replace(` ${puzzle.snakes[puzzle.you].name}`, "")}.`;
  $("source").hidden = !puzzle.source;
  if (puzzle.source) $("source").href = sourceAddress(puzzle);
  $("verdict").textContent = "";
  for (const button of $("answers").children) button.disabled = false;
  $("previous").disabled = index === 0;
  $("next").disabled = index === puzzles.length - 1;
  showCount();
  history.replaceState(null, "", `#${index + 1}`);
}

/** Returns the list item of a living snake: its color, length and health. */
function livingItem({ snakes, frame, you }, seat) {
  const { death, length, health } = frame.snakes[seat];
  if (death) return [];
  const item = snakeItem(snakes[seat].color,
    `${seat === you ? "You" : "Opponent"}: length ${length ?? frame.snakes[seat].body.length}, health ${health}`);
  item.className = "task";
  return [item];
}

/** Returns the address of the source game on the playable page, at the turn of the puzzle. */
function sourceAddress({ source, width, height, ruleset, snakes }) {
  return `index.html#${new URLSearchParams({
    size: `${width}x${height}`, ruleset, opponents: snakes.length - 1, strength: "champion", who: "watch",
    seed: source.seed, moves: source.moves,
  })}`;
}

function showCount() {
  const answered = puzzles.filter(({ name }) => firstAnswers.has(name));
  const numRight = answered.filter(({ name }) => firstAnswers.get(name)).length;
  $("count").textContent = `${index + 1} of ${puzzles.length}; ` +
    `${numRight} of ${answered.length} solved at the first attempt; your rating ${Math.round(rating)}`;
}

/** Updates the visitor's rating. */
function rate(right) {
  const expected = 1 / (1 + 10 ** ((ratingOf(puzzles[index]) - rating) / 400));
  rating += RATING_STEP * (Number(right) - expected);
  localStorage.setItem("puzzle-rating", rating);
}

/** Returns the frames after a move; the search plays all snakes. */
async function framesAfter(puzzle, move) {
  if (puzzle.source) return (await import("./frames.js")).playOut(puzzle, move, MAX_TURNS);
  return readJson(fetch(`puzzle/${puzzles.indexOf(puzzle)}/${move}?turns=${MAX_TURNS}`));
}

/** Returns the fate of the puzzle's snake, with the number of turns. */
function fate({ you }, frames) {
  const last = frames.at(-1).snakes;
  const turns = `${frames.length} turn${frames.length === 1 ? "" : "s"}`;
  const { death } = last[you];
  if (death) return `You ${yourCause(death.cause)} after ${turns}.`;
  const wins = last.every((snake, i) => i === you || snake.death);
  return wins ? `You win after ${turns}.` : `You still live after ${turns}.`;
}

/** Plays out a move, and shows the reason why it loses or not. */
async function playOut(move) {
  const puzzle = puzzles[index];
  numReplies += 1;
  const number = numReplies;
  let [frames, text] = [[], ""];
  try {
    frames = await framesAfter(puzzle, move);
    text = fate(puzzle, frames);
  } catch (error) {
    text = `The next turns cannot be shown: ${error.message}.`;
  }
  if (number !== numReplies) return;
  $("verdict").textContent += ` ${text}`;
  clearInterval(playing);
  let turn = 0;
  playing = setInterval(() => {
    view.draw(frames[turn] ?? puzzle.frame);
    if (turn > frames.length) clearInterval(playing);
    turn += 1;
  }, FRAME_MS);
}

function answer(move) {
  const button = $("answers").querySelector(`[data-move="${move}"]`);
  if (button.disabled) return;
  const { name, allowed } = puzzles[index];
  const right = allowed.includes(move);
  if (!firstAnswers.has(name)) {
    firstAnswers.set(name, right);
    localStorage.setItem("puzzle-answers", JSON.stringify([...firstAnswers]));
    rate(right);
  }
  $("verdict").textContent = right ? `${ARROWS[move]} Correct.` : `${ARROWS[move]} That move loses.`;
  button.disabled = true;
  if (right) {
    for (const other of $("answers").children) other.disabled = true;
    $("next").focus();
  }
  showCount();
  playOut(move);
}

function goTo(target) {
  index = Math.min(Math.max(target, 0), puzzles.length - 1);
  show();
}

/** Shows the puzzle in the address, or the first puzzle without an answer. */
function openAddress() {
  const number = Number.parseInt(location.hash.slice(1), 10);
  goTo((number || puzzles.findIndex(({ name }) => !firstAnswers.has(name)) + 1) - 1);
}

for (const button of $("answers").children) {
  button.addEventListener("click", () => answer(button.dataset.move));
}
$("previous").addEventListener("click", () => goTo(index - 1));
$("next").addEventListener("click", () => goTo(index + 1));
addEventListener("hashchange", openAddress);
addEventListener("storage", () => {
  loadAnswers();
  showCount();
});
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (KEYS[event.key]) answer(KEYS[event.key]);
  else if (event.key === " " && !event.target.closest("button")) goTo(index + 1);
  else return;
  event.preventDefault();
});
loadAnswers();
openAddress();
