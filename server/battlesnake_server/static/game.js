// The page of one game of the arena: follows it while it is on, and steers for who sits at it.

import { $, fetchOn, opened } from "./player.js";

const RETRY = 2000; // milliseconds after which a lost connection is tried again
const BREATH = 700; // between two questions, where the arena does not let this page wait
const SWIPE = 24; // pixels that a finger moves to mean a direction
const MINE = 0; // who plays by keyboard has the first seat

const rest = (time) => new Promise((done) => setTimeout(done, time));

/** Ask for more frames until the game is over. */
async function follow(player, address) {
  while (!player.game.over) {
    const [asked, known] = [performance.now(), player.last];
    try {
      const answer = await fetch(`${address}?since=${player.last}&wait`);
      if (!answer.ok) return;
      player.grow(await answer.json());
      if (player.last === known && performance.now() - asked < BREATH) await rest(BREATH);
    } catch {
      await rest(RETRY);
    }
  }
}

/** The state of the game, in words. */
function outcome(player, frame, atEnd, seated) {
  const { game } = player;
  const { death } = frame.snakes[MINE];
  if (!game.over || !atEnd) {
    if (seated && death) return `You have been out since turn ${death.turn}`;
    if (seated) return "Your turn: arrow keys, or swipe";
    return game.over ? "" : "live";
  }
  const winners = game.snakes.filter((_, i) => !frame.snakes[i].death);
  if (game.snakes.length === 1) return `Over after ${frame.turn} turns`;
  if (winners.length > 1) return "Ended without a winner";
  if (winners.length === 0) return "A draw";
  if (seated) return winners[0] === game.snakes[MINE] ? "You won!" : `${winners[0].name} won`;
  return `${winners[0].name} won`;
}

/** Let keys, buttons and swipes steer the first snake. */
function sit(player, seat) {
  const steer = (move) => fetch(seat.dataset.address, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ key: seat.dataset.key, move }),
  }).catch(() => {}); // the page that follows the game says when the arena is gone
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
    if (Math.max(Math.abs(dx), Math.abs(dy)) < SWIPE) return;
    from = [event.clientX, event.clientY]; // a finger may turn without being lifted
    if (Math.abs(dx) > Math.abs(dy)) steer(dx > 0 ? "right" : "left");
    else steer(dy > 0 ? "down" : "up");
  });
  for (const end of ["pointerup", "pointercancel"]) {
    board.addEventListener(end, () => { from = null; });
  }
}

/** Let those who may do so end a game that goes on and on. */
function offerToStop(player) {
  const button = $("stop");
  if (!button) return;
  button.hidden = player.game.over;
  button.addEventListener("click", () => {
    button.disabled = true;
    fetch(button.dataset.address, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: "{}",
    }).catch(() => { button.disabled = false; });
  });
}

/** Give the keys back to the viewer, and offer another game. */
function stand(player) {
  player.steer = null;
  document.body.classList.remove("seated");
  const rivals = player.game.snakes.slice(1)
    .map(({ name }) => `against=${encodeURIComponent(name.replace(/ \(\d+\)$/, ""))}`);
  $("again").href = `${$("again").pathname}?${rivals.join("&")}`;
  $("again").hidden = false;
}

async function begin() {
  const root = $("player");
  const seat = $("seat");
  const fresh = location.hash === "#play";
  const late = !location.hash;
  try {
    const player = await opened(root);
    const { game } = player;
    document.title = game.snakes.map((snake) => snake.name).join(" · ");
    if (seat && !game.over) sit(player, seat);
    offerToStop(player);
    const tell = (frame, atEnd) => {
      const seated = seat !== null;
      $("outcome").textContent = outcome(player, frame, atEnd, seated);
      document.body.classList.toggle("on-air", !game.over);
      if (game.over) $("stop")?.remove();
      const dead = Boolean(frame.snakes[MINE].death);
      if (player.steer && (dead || (game.over && atEnd))) stand(player);
    };
    player.shown = tell;
    if (!game.over && late) player.go(player.last);
    if (!game.over || fresh) player.play();
    player.grow({ from: game.frames.length, frames: [] });
    await fetchOn(player, root.dataset.game);
    await follow(player, root.dataset.game);
    player.look();
  } catch (error) {
    root.hidden = true;
    $("message").hidden = false;
    $("message").textContent = `This game cannot be shown: ${error.message}`;
  }
}

begin();
