// Draws the last position of each game of the list once it comes into view.

import { BoardView } from "./board.js";

async function draw(svg) {
  const answer = await fetch(svg.dataset.address);
  if (!answer.ok) return; // the replay is gone; the result beside it stays
  const game = await answer.json();
  new BoardView(svg, game).draw(game.frame);
  const dots = svg.parentElement.querySelectorAll(".names .dot circle");
  dots.forEach((dot, i) => dot.setAttribute("fill", game.snakes[i].color));
}

const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    draw(target);
  }
});

for (const svg of document.querySelectorAll("svg[data-address]")) seen.observe(svg);
