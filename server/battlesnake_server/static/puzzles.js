// The page on which puzzles are solved by hand: one position after the other, one right move each.

import { BoardView } from "./board.js";
import { ARROWS } from "./thoughts.js";

const $ = (id) => document.getElementById(id);
const KEYS = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" };
const puzzles = JSON.parse($("puzzles").textContent);
const tried = new Map(); // number of the puzzle -> whether the first answer was right
let at = Math.min(Math.max(Number(location.hash.slice(1)) - 1 || 0, 0), puzzles.length - 1);

function show() {
  const puzzle = puzzles[at];
  const view = new BoardView($("board"), puzzle, { coordinates: true });
  view.select(puzzle.you);
  view.draw(puzzle.frame);
  $("name").textContent = puzzle.name;
  $("task").textContent = `One move saves ${puzzle.snakes[puzzle.you].name}. Which?`;
  $("note").textContent = puzzle.note;
  $("verdict").textContent = "";
  for (const button of $("answers").children) button.disabled = false;
  $("before").disabled = at === 0;
  $("next").disabled = at === puzzles.length - 1;
  count();
  history.replaceState(null, "", `#${at + 1}`);
}

function count() {
  const right = [...tried.values()].filter(Boolean).length;
  $("count").textContent = `${at + 1} of ${puzzles.length}; ${right} of ${tried.size} right at once`;
}

function answer(move) {
  const button = $("answers").querySelector(`[data-move="${move}"]`);
  if (button.disabled) return;
  const right = puzzles[at].allowed.includes(move);
  if (!tried.has(at)) tried.set(at, right);
  $("verdict").textContent = right ? `${ARROWS[move]} Right.` : `${ARROWS[move]} That one loses.`;
  button.disabled = true;
  if (right) for (const other of $("answers").children) other.disabled = true;
  count();
}

function step(by) {
  at = Math.min(Math.max(at + by, 0), puzzles.length - 1);
  show();
}

for (const button of $("answers").children) {
  button.addEventListener("click", () => answer(button.dataset.move));
}
$("before").addEventListener("click", () => step(-1));
$("next").addEventListener("click", () => step(1));
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (KEYS[event.key]) answer(KEYS[event.key]);
  else if (event.key === " " && !event.target.closest("button")) step(1);
  else return;
  event.preventDefault();
});
show();
