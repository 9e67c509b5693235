// The games that are on now, each as it stands.

import { BoardView, element } from "./board.js";
import { $ } from "./player.js";
import { html } from "./thoughts.js";

const EVERY = 700; // milliseconds between two looks
const PATIENCE = 8; // looks that see nothing, until the page is made anew to show the last game
const cards = new Map(); // by the address of the game's page

let idle = NaN; // those looks, once a game was on

function makeCard(game) {
  const svg = element("svg", { class: "board thumbnail", "aria-hidden": "true" });
  const names = html("ul", "names", ...game.snakes.map(({ name, color }) => html("li", "",
    element("svg", { class: "dot", viewBox: "0 0 10 10", "aria-hidden": "true" },
      element("circle", { cx: 5, cy: 5, r: 5, fill: color })),
    html("span", "", name))));
  const turn = html("p", "pale");
  const link = html("a", "game", svg, html("div", "telling", names, turn));
  link.href = game.page;
  return { root: html("li", "", link), view: new BoardView(svg, game), names, turn };
}

function update(card, game) {
  card.view.draw(game.frame);
  const where = game.ruleset === "standard" ? "" : ` · ${game.ruleset}`;
  card.turn.textContent = `turn ${game.frame.turn}${where}`;
  [...card.names.children].forEach((name, i) => {
    name.classList.toggle("out", Boolean(game.frame.snakes[i].death));
  });
}

async function look() {
  const root = $("games");
  const answer = await fetch(root.dataset.address);
  const games = await answer.json();
  const on = new Set(games.map((game) => game.page));
  for (const [page, card] of cards) {
    if (on.has(page)) continue;
    card.root.remove();
    cards.delete(page);
  }
  for (const game of games) {
    if (!cards.has(game.page)) {
      cards.set(game.page, makeCard(game));
      root.append(cards.get(game.page).root);
    }
    update(cards.get(game.page), game);
  }
  $("nothing").hidden = games.length > 0;
  $("last")?.toggleAttribute("hidden", games.length > 0);
  idle = games.length ? 0 : idle + 1;
  if (idle === PATIENCE) location.reload();
  $("count").textContent = games.length ? `${games.length} being played` : "";
}

async function keepLooking() {
  try {
    if (!document.hidden) await look();
  } catch {
    $("count").textContent = "the arena does not answer";
  }
  setTimeout(keepLooking, EVERY);
}

keepLooking();
