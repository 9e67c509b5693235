// The page of a served snake: how it looks, the game that it plays now, and its last one after that.

import { BoardView } from "./board.js";

const $ = (id) => document.getElementById(id);
const EVERY = 500; // milliseconds between two looks
const PACE = 180; // milliseconds a turn of a game that is over
const here = location.pathname.replace(/\/$/, "");
const look = JSON.parse($("look").textContent);
const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
let [game, view, turn] = [{ version: -1, frames: [] }, null, 0];

new BoardView($("portrait"), { width: 6, height: 1, snakes: [look] }).draw({
  food: [], hazards: [],
  snakes: [{ body: [4, 3, 2, 1].map((x) => [x, 0]), death: null, next: null }],
});

function show() {
  const frame = game.frames[turn];
  if (!frame) return;
  view.select(game.over ? game.you : null);
  view.draw(frame);
  const last = game.frames.at(-1).turn;
  $("caption").textContent = !game.over ? `Playing now: turn ${frame.turn}`
    : `${game.id ? "Its last game" : "It has played no game yet; this one it played for you"}: ` +
      `turn ${frame.turn} of ${last}`;
  $("snakes").replaceChildren(...frame.snakes.map((snake, i) => {
    const item = document.createElement("li");
    const dot = document.createElement("span");
    dot.className = "dot";
    dot.style.background = game.snakes[i].color;
    const fate = snake.death ? `out since turn ${snake.death.turn}`
      : `length ${snake.body.length}, health ${snake.health}`;
    item.append(dot, `${game.snakes[i].name}: ${fate}`);
    return item;
  }));
}

function showStatistics({ num_moves, strategy, latency_percentiles_ms, games }) {
  const bound = (ms) => (ms === null ? "more than 2.5 s" : `${ms} ms`);
  $("moves").textContent = num_moves.toLocaleString("en");
  $("games").textContent = games;
  $("share").textContent = num_moves ? `${(100 * strategy).toFixed(1)} %` : "–";
  const [median, high] = latency_percentiles_ms.map(bound);
  $("latency").textContent = num_moves ? `half within ${median}, 95% within ${high}` : "–";
}

async function ask() {
  try {
    const answer = await fetch(`${here}/now?since=${game.frames.length}&version=${game.version}`);
    const { game: news, moves } = await answer.json();
    showStatistics(moves);
    if (news.version !== game.version && news.frames.length) {
      game = news;
      Object.assign(game.snakes[game.you], look);
      view = new BoardView($("board"), game);
      turn = game.over ? 0 : game.frames.length - 1;
    } else {
      game.frames.push(...news.frames);
      if (!game.over) turn = game.frames.length - 1;
    }
    show();
  } catch {
    $("caption").textContent = "The snake does not answer.";
  }
  setTimeout(ask, EVERY);
}

setInterval(() => {
  if (!game.over || calm || document.hidden) return;
  turn = (turn + 1) % (game.frames.length + 8); // the end stays for a while
  if (turn < game.frames.length) show();
}, PACE);
$("address").textContent = location.origin + (here || "/");
ask();
