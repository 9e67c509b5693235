// The page of one game of the arena: streams a live game and sends the keyboard player's moves.

import { $ } from "./board.js";
import { fetchMore, openPlayer, showMessage } from "./player.js";
import { post, sleep } from "./requests.js";

const RETRY_MS = 2000; // delay in ms after a failed request
const POLL_MS = 700; // interval in ms between requests if the server rejects long polls
const SWIPE_PX = 24; // minimum length of a swipe in pixels
const OWN_SEAT = 0; // seat of the keyboard player

/** Requests further frames until the game is over. */
async function streamGame(player, address) {
  while (!player.game.over) {
    const [started, last] = [performance.now(), player.last];
    try {
      const response = await fetch(`${address}?since=${player.last}&wait`);
      if (response.status >= 500) throw new Error(); // the server restarts
      const sent = await response.json();
      player.grow(response.ok ? sent : { from: last + 1, frames: [], over: true, problem: sent.error });
      if (player.last === last && performance.now() - started < POLL_MS) await sleep(POLL_MS);
    } catch {
      await sleep(RETRY_MS);
    }
  }
}

/** Returns a description of the state of the game. */
function outcome(player, frame, atEnd, seated) {
  const { game } = player;
  const { death } = frame.snakes[OWN_SEAT];
  if (!atEnd) {
    if (seated && death) return `You were eliminated on turn ${death.turn}`;
    if (seated) return "Your turn: arrow keys, or swipe";
    return game.over ? "" : "live";
  }
  const winners = game.snakes.filter((_, i) => !frame.snakes[i].death);
  if (game.snakes.length === 1) return `Over after ${frame.turn} turn${frame.turn === 1 ? "" : "s"}`;
  if (winners.length > 1) return "Stopped without a winner";
  if (winners.length === 0) return "Draw";
  if (seated) return winners[0] === game.snakes[OWN_SEAT] ? "You won!" : `${winners[0].name} won`;
  return `${winners[0].name} won`;
}

/** Connects keys, buttons and swipes to the keyboard player's snake. */
function takeSeat(player, seat) {
  const steer = (move) => post(seat.dataset.address, { key: seat.dataset.key, move })
    .catch(() => {}); // streamGame reports a lost connection
  if (player.game.view_radius !== null) player.select(OWN_SEAT);
  player.steer = steer;
  document.body.classList.add("seated");
  for (const button of $("pad").querySelectorAll("button")) {
    button.addEventListener("pointerdown", () => steer(button.dataset.move));
    button.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") steer(button.dataset.move);
    });
  }
  const board = $("board");
  let from = null;
  board.addEventListener("pointerdown", (event) => {
    from = [event.clientX, event.clientY];
    board.setPointerCapture(event.pointerId);
  });
  board.addEventListener("pointermove", (event) => {
    if (!from) return;
    const [dx, dy] = [event.clientX - from[0], event.clientY - from[1]];
    if (Math.max(Math.abs(dx), Math.abs(dy)) < SWIPE_PX) return;
    from = [event.clientX, event.clientY]; // one gesture may contain several swipes
    if (Math.abs(dx) > Math.abs(dy)) steer(dx > 0 ? "right" : "left");
    else steer(dy > 0 ? "down" : "up");
  });
  for (const end of ["pointerup", "pointercancel"]) {
    board.addEventListener(end, () => { from = null; });
  }
}

/** Shows the button that stops a live game if the visitor may stop the game. */
function showStopButton(player) {
  const button = $("stop");
  if (!button) return;
  button.hidden = player.game.over;
  button.addEventListener("click", () => {
    button.disabled = true;
    post(button.dataset.address).catch(() => { button.disabled = false; });
  });
}

/** Connects the keys to the player controls again, and shows the link to a new game. */
function leaveSeat(player) {
  player.steer = null;
  document.body.classList.remove("seated");
  const opponents = player.game.snakes.slice(1)
    .map(({ name }) => `against=${encodeURIComponent(name.replace(/ \(\d+\)$/, ""))}`);
  $("again").href = `${$("again").pathname}?${opponents.join("&")}`;
  $("again").hidden = false;
}

async function main() {
  const root = $("player");
  const seat = $("seat");
  const fresh = location.hash === "#play";
  const showLatest = !location.hash;
  try {
    const player = await openPlayer(root);
    const { game } = player;
    document.title = game.snakes.map((snake) => snake.name).join(" · ");
    if (seat && !game.over) takeSeat(player, seat);
    showStopButton(player);
    const showOutcome = (frame, atEnd) => {
      const seated = seat !== null;
      const text = outcome(player, frame, atEnd, seated);
      $("outcome").textContent = [text, game.problem].filter(Boolean).join(" · ");
      document.body.classList.toggle("live", !game.over);
      if (game.over) $("stop")?.remove();
      const dead = Boolean(frame.snakes[OWN_SEAT].death);
      if (player.steer && (dead || atEnd)) leaveSeat(player);
    };
    player.onShow = showOutcome;
    if (!game.over && showLatest) player.go(player.last);
    if (!game.over || fresh) player.play();
    player.refresh();
    await streamGame(player, root.dataset.game);
    await fetchMore(player, root.dataset.game);
    player.openAnalysis();
  } catch (error) {
    root.hidden = true;
    showMessage(`This game cannot be shown: ${error.message}`);
  }
}

main();
