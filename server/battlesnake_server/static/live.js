// The page of live games, which shows the current position of each game.

import { $, BoardView, colorDot, element } from "./board.js";
import { html } from "./decision.js";

const POLL_MS = 700;
const MAX_EMPTY_POLLS = 8; // number of polls without a live game before the page reloads
const cards = new Map(); // address of the game's page -> card

let emptyPolls = NaN; // NaN until a game is live

function makeCard(game) {
  const svg = element("svg", { class: "board thumbnail", "aria-hidden": "true" });
  const names = html("ul", "names", ...game.snakes.map(({ name, color }) => html("li", "",
    colorDot(color), html("span", "", name))));
  const turn = html("p", "pale");
  const link = html("a", "game", svg, html("div", "summary", names, turn));
  link.href = game.page;
  return { root: html("li", "", link), view: new BoardView(svg, game), names, turn };
}

function update(card, game) {
  card.view.draw(game.frame);
  const ruleset = game.ruleset === "standard" ? "" : ` · ${game.ruleset}`;
  card.turn.textContent = `turn ${game.frame.turn}${ruleset}`;
  [...card.names.children].forEach((name, i) => {
    name.classList.toggle("eliminated", Boolean(game.frame.snakes[i].death));
  });
}

async function poll() {
  const root = $("games");
  const response = await fetch(root.dataset.address);
  const games = await response.json();
  const live = new Set(games.map((game) => game.page));
  for (const [page, card] of cards) {
    if (live.has(page)) continue;
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
  emptyPolls = games.length ? 0 : emptyPolls + 1;
  if (emptyPolls === MAX_EMPTY_POLLS) location.reload();
  $("count").textContent = games.length ? `${games.length} live` : "";
}

async function pollForever() {
  try {
    if (!document.hidden) await poll();
  } catch {
    $("count").textContent = "the arena does not respond";
  }
  setTimeout(pollForever, POLL_MS);
}

pollForever();
