// Draws the last position of each listed game when the game's card scrolls into view.

import { BoardView } from "./board.js";

async function draw(svg) {
  const response = await fetch(svg.dataset.address);
  if (!response.ok) return; // the replay was deleted; the card still shows the result
  const game = await response.json();
  new BoardView(svg, game).draw(game.frame);
  const dots = svg.parentElement.querySelectorAll(".names .dot circle");
  dots.forEach((dot, i) => dot.setAttribute("fill", game.snakes[i].color));
}

const observer = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    observer.unobserve(target);
    draw(target);
  }
});

for (const svg of document.querySelectorAll("svg[data-address]")) observer.observe(svg);
