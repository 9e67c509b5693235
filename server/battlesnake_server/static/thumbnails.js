// Draws the last position of each listed game.

import { BoardView } from "./board.js";

function draw() {
  for (const svg of document.querySelectorAll("svg[data-game]:empty")) {
    const game = JSON.parse(svg.dataset.game);
    new BoardView(svg, game).draw(game.frame);
  }
}

document.addEventListener("live", draw);
draw();
