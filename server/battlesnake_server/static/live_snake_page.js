// The page of a live snake: the customization, and the current or the last game.

import { $, BoardView, snakeItem } from "./board.js";

const POLL_MS = 500;
const REPLAY_TURN_MS = 180; // duration in ms of a turn of a finished game
const basePath = location.pathname.replace(/\/$/, "");
const customization = JSON.parse($("customization").textContent);
const prefersReducedMotion = matchMedia("(prefers-reduced-motion: reduce)").matches;
let [game, view, turn] = [{ version: -1, frames: [] }, null, 0];

new BoardView($("portrait"), { width: 6, height: 1, snakes: [customization] }).draw({
  food: [], hazards: [],
  snakes: [{ body: [4, 3, 2, 1].map((x) => [x, 0]), death: null, next: null }],
});

function show() {
  $("note").textContent = game.note;
  if (!game.frames[turn]) return;
  view.select(game.over || game.view_radius !== null ? game.you : null);
  const frame = view.limit(game.frames[turn], game.frames[turn - 1]);
  view.draw(frame);
  const last = game.frames.at(-1).turn;
  $("caption").textContent = !game.over ? `Live: turn ${frame.turn}`
    : `${game.id ? "Last game" : "No game yet; this is a sample game"}: ` +
      `turn ${frame.turn} of ${last}`;
  $("snakes").replaceChildren(...frame.snakes.map((snake, i) => {
    const fate = snake.death ? `eliminated on turn ${snake.death.turn}`
      : snake.health === null ? `${snake.body.length} visible segments`
        : `length ${snake.body.length}, health ${snake.health}`;
    return snakeItem(game.snakes[i].color, `${game.snakes[i].name}: ${fate}`);
  }));
}

function showStatistics({ num_moves, strategy, latency_percentiles_ms, games }) {
  const bound = (ms) => (ms === null ? "above 2.5 s" : `at most ${ms} ms`);
  $("moves").textContent = num_moves.toLocaleString("en");
  $("games").textContent = games;
  $("share").textContent = num_moves ? `${(100 * strategy).toFixed(1)}%` : "–";
  const [median, high] = latency_percentiles_ms.map(bound);
  $("latency").textContent = num_moves ? `median ${median}, 95th percentile ${high}` : "–";
}

/** Returns the snake's moves before the shown turn of the sample game, as first letters. */
function movesOfSample() {
  if (!game.over || game.id) return "";
  const moves = game.frames.slice(0, turn).map((frame) => frame.snakes[game.you].next?.move?.[0] ?? "");
  return moves.slice(0, 400).join("");
}

async function poll() {
  try {
    // `serve --reload` restarts the server: its sample game then continues from the shown position.
    const [moves, shown] = [movesOfSample(), turn];
    const response = await fetch(
      `${basePath}/now?since=${game.frames.length}&version=${game.version}&moves=${moves}`);
    const { game: update, moves: statistics } = await response.json();
    showStatistics(statistics);
    if (update.version !== game.version && update.frames.length) {
      game = update;
      const own = game.snakes[game.you];
      const taken = game.snakes.some((snake) => snake !== own && snake.color === customization.color);
      Object.assign(own, customization, taken && { color: own.color });
      view = new BoardView($("board"), game);
      turn = game.over ? Math.min(moves ? shown : 0, game.frames.length - 1) : game.frames.length - 1;
    } else {
      game.frames.push(...update.frames);
      game.note = update.note;
      if (!game.over) turn = game.frames.length - 1;
    }
  } catch {
    game.note = "The snake does not respond.";
  }
  show();
}

async function pollForever() {
  if (!document.hidden) await poll();
  setTimeout(pollForever, POLL_MS);
}

setInterval(() => {
  if (!game.over || prefersReducedMotion || document.hidden) return;
  turn = (turn + 1) % (game.frames.length + 8); // the page shows the last position for 8 more turns
  if (turn < game.frames.length) show();
}, REPLAY_TURN_MS);
$("address").textContent = location.origin + (basePath || "/");
pollForever();
