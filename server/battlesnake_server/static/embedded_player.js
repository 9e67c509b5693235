// Player of an embedded game, with a button and a slider, for self-contained pages. The game plays at
// once, or shows the turn in the address (#turn=53). The page contains these elements:
//
//   <svg class="board" id="board">, <button id="play">, <input id="turn" type="range">,
//   <output id="shown">, <ul id="snakes">,
//   <script type="application/json" id="game" data-speed="TURNS PER SECOND">

import { $, BoardView, CAUSES, snakeItem } from "./board.js";

const game = JSON.parse($("game").textContent);
const view = new BoardView($("board"), game);
const addressed = new URLSearchParams(location.hash.slice(1)).get("turn"); // #turn=53
let playing = addressed === null && !window.matchMedia("(prefers-reduced-motion: reduce)").matches;
$("turn").max = game.frames.length - 1;
$("turn").value = Number(addressed ?? game.frames[0].turn) - game.frames[0].turn;
function show() {
  const frame = game.frames[$("turn").value];
  view.draw(frame);
  $("shown").textContent = `turn ${frame.turn}`;
  $("snakes").replaceChildren(...frame.snakes.map((snake, i) => {
    const fate = snake.death ? `${CAUSES[snake.death.cause] ?? snake.death.cause}, turn ${snake.death.turn}`
      : `length ${snake.body.length}, health ${snake.health}`;
    return snakeItem(game.snakes[i].color, `${game.snakes[i].name}: ${fate}`);
  }));
}
function pause(paused) {
  playing = !paused;
  $("play").textContent = playing ? "Pause" : "Play";
}
$("play").addEventListener("click", () => {
  if (!playing && $("turn").value === $("turn").max) $("turn").value = 0;
  pause(playing);
});
$("turn").addEventListener("input", () => { pause(true); show(); });
setInterval(() => {
  if (!playing) return;
  if ($("turn").value === $("turn").max) pause(true);
  else $("turn").stepUp();
  show();
}, 1000 / Number($("game").dataset.speed));
pause(!playing);
show();
