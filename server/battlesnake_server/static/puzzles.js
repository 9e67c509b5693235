// The puzzles page: the visitor solves positions with exactly one correct move.

import { BoardView } from "./board.js";
import { ARROWS } from "./decision.js";

const $ = (id) => document.getElementById(id);
const KEYS = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" };
const puzzles = JSON.parse($("puzzles").textContent);
const firstAnswers = new Map(); // index of the puzzle -> whether the first move was correct
let index = Math.min(Math.max(Number(location.hash.slice(1)) - 1 || 0, 0), puzzles.length - 1);

function show() {
  const puzzle = puzzles[index];
  const view = new BoardView($("board"), puzzle, { coordinates: true });
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
    `${numRight} of ${firstAnswers.size} solved at the first attempt`;
}

function answer(move) {
  const button = $("answers").querySelector(`[data-move="${move}"]`);
  if (button.disabled) return;
  const right = puzzles[index].allowed.includes(move);
  if (!firstAnswers.has(index)) firstAnswers.set(index, right);
  $("verdict").textContent = right ? `${ARROWS[move]} Correct.` : `${ARROWS[move]} That move loses.`;
  button.disabled = true;
  if (right) for (const other of $("answers").children) other.disabled = true;
  showCount();
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
