// Draws the last position of every game of the list.

import { BoardView } from "./board.js";

for (const svg of document.querySelectorAll("svg[data-game]")) {
  const game = JSON.parse(svg.dataset.game);
  new BoardView(svg, game).draw(game.frame);
}
