// The form for a new game.

import { BoardView } from "./board.js";
import { $ } from "./player.js";

const MOST = 8;
const about = JSON.parse($("about").textContent);
const mapAbouts = JSON.parse($("map-abouts").textContent);
const seats = $("seats");
let previews = 0;
const onlyLooking = $("begin").disabled; // without the token nothing may be asked for

function addSeat(name) {
  const item = $("seat").content.firstElementChild.cloneNode(true);
  const choice = item.querySelector(".snake");
  const tell = () => { item.querySelector(".about").textContent = about[choice.value] ?? ""; };
  choice.value = name;
  if (!choice.value) choice.selectedIndex = 0;
  choice.addEventListener("input", tell);
  item.querySelector(".remove").addEventListener("click", () => {
    item.remove();
    refresh();
  });
  seats.append(item);
  tell();
  refresh();
}

function refresh() {
  const sitting = $("sit").checked;
  const players = seats.children.length + (sitting ? 1 : 0);
  $("add").disabled = players >= MOST;
  $("name-row").hidden = !sitting;
  $("pace-row").hidden = !sitting;
  preview();
}

/** The game that the form describes. */
function wished() {
  const size = Number($("size").value);
  const wish = {
    snakes: [...seats.querySelectorAll(".snake")].map((choice) => choice.value.trim()),
    width: size, height: size,
    ruleset: $("ruleset").value, map: $("map").value,
    timeout: Number($("timeout").value), turns: Number($("turns").value),
  };
  if ($("sit").checked) {
    wish.human = $("human").value;
    wish.pace = Number($("pace").value);
  }
  return wish;
}

async function post(address) {
  const answer = await fetch(address, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(wished()),
  });
  const sent = await answer.json();
  if (!answer.ok) throw new Error(sent.error);
  return sent;
}

/** Show how the game would begin, or why it cannot. */
async function preview() {
  $("map-about").textContent = mapAbouts[$("map").value];
  if (onlyLooking) return;
  previews += 1;
  const mine = previews; // answers to what the form said before may come later
  try {
    const game = await post($("new-game").dataset.preview);
    if (mine !== previews) return;
    new BoardView($("preview"), game).draw(game.frame);
    $("error").textContent = "";
  } catch (error) {
    if (mine === previews) $("error").textContent = error.message;
  }
}

async function begin(event) {
  event.preventDefault();
  $("error").textContent = "";
  $("begin").disabled = true;
  try {
    const sent = await post(location.pathname);
    location.assign(`${sent.page}#play`);
  } catch (error) {
    $("error").textContent = error.message;
    $("begin").disabled = false;
  }
}

for (const name of JSON.parse($("against").textContent)) addSeat(name);
$("new-game").addEventListener("change", preview);
$("add").addEventListener("click", () => addSeat("cautious"));
$("sit").addEventListener("change", refresh);
$("new-game").addEventListener("submit", begin);
addEventListener("pageshow", () => { $("begin").disabled = onlyLooking; });
refresh();
