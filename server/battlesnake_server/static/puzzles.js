// The puzzles page: the visitor solves positions with exactly one correct move.

import { BoardView } from "./board.js";
import { ARROWS } from "./decision.js";

const $ = (id) => document.getElementById(id);
const KEYS = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" };
const puzzles = JSON.parse($("puzzles").textContent);
const FRAME_MS = 300; // duration of a turn that is played out
const RATING_STEP = 32; // largest change of the visitor's rating per puzzle (the K factor of Elo)
let rating = Number(localStorage.getItem("puzzle-rating")) || 1200;
let view = null;
let playing = null; // timer of the turns that are played out
const firstAnswers = new Map(); // index of the puzzle -> whether the first move was correct
let index = Math.min(Math.max(Number(location.hash.slice(1)) - 1 || 0, 0), puzzles.length - 1);

function show() {
  const puzzle = puzzles[index];
  clearInterval(playing);
  view = new BoardView($("board"), puzzle, { coordinates: true });
  view.select(puzzle.you);
  view.draw(puzzle.frame);
  $("name").textContent = puzzle.name;
  $("task").textContent = `Only one move saves ${puzzle.snakes[puzzle.you].name}. Which one?`;
  $("note").textContent = puzzle.note;
  $("verdict").textContent = "";
  for (const button of $("answers").children) button.disabled = false;
  $("previous").disabled = index === 0;
  $("next").disabled = index === puzzles.length - 1;
  showCount();
  history.replaceState(null, "", `#${index + 1}`);
}

function showCount() {
  const numRight = [...firstAnswers.values()].filter(Boolean).length;
  $("count").textContent = `${index + 1} of ${puzzles.length}; ` +
    `${numRight} of ${firstAnswers.size} solved at the first attempt; your rating ${Math.round(rating)}`;
}

/** Updates the visitor's rating; a puzzle of grade 1, 2 or 3 is rated 1000, 1400 or 1800. */
function rate(right) {
  const [, grade] = puzzles[index].note.match(/grade (\d)/) ?? [0, 2];
  const expected = 1 / (1 + 10 ** ((600 + 400 * grade - rating) / 400));
  rating += RATING_STEP * (Number(right) - expected);
  localStorage.setItem("puzzle-rating", rating);
}

/** Plays out a move, and shows the reason why it loses or not. */
async function playOut(move) {
  const shown = index;
  const response = await fetch(`puzzle/${index}/${move}`);
  const { frames, reason } = await response.json();
  if (!response.ok || index !== shown) return;
  $("verdict").textContent += ` ${reason}.`;
  clearInterval(playing);
  let turn = 0;
  playing = setInterval(() => {
    view.draw(frames[turn] ?? puzzles[index].frame);
    if (turn > frames.length) clearInterval(playing);
    turn += 1;
  }, FRAME_MS);
}

function answer(move) {
  const button = $("answers").querySelector(`[data-move="${move}"]`);
  if (button.disabled) return;
  const right = puzzles[index].allowed.includes(move);
  if (!firstAnswers.has(index)) {
    firstAnswers.set(index, right);
    rate(right);
  }
  $("verdict").textContent = right ? `${ARROWS[move]} Correct.` : `${ARROWS[move]} That move loses.`;
  button.disabled = true;
  if (right) for (const other of $("answers").children) other.disabled = true;
  showCount();
  playOut(move);
}

function step(by) {
  index = Math.min(Math.max(index + by, 0), puzzles.length - 1);
  show();
}

for (const button of $("answers").children) {
  button.addEventListener("click", () => answer(button.dataset.move));
}
$("previous").addEventListener("click", () => step(-1));
$("next").addEventListener("click", () => step(1));
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (KEYS[event.key]) answer(KEYS[event.key]);
  else if (event.key === " " && !event.target.closest("button")) step(1);
  else return;
  event.preventDefault();
});
show();
