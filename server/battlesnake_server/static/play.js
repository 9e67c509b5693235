// The form for a new game.

import { $, BoardView } from "./board.js";
import { post, readJson } from "./requests.js";

const MAX_SNAKES = 8;
const descriptions = JSON.parse($("descriptions").textContent);
const mapDescriptions = JSON.parse($("map-descriptions").textContent);
const snakes = $("snakes");
const readOnly = $("start").disabled; // without the access token, the server rejects all requests
let numPreviews = 0;

function addSnake(name) {
  const item = $("snake").content.firstElementChild.cloneNode(true);
  const choice = item.querySelector(".snake");
  const describe = () => {
    item.querySelector(".about").textContent = descriptions[choice.value] ?? "";
  };
  choice.value = name;
  if (!choice.value) choice.selectedIndex = 0;
  choice.addEventListener("input", describe);
  item.querySelector(".remove").addEventListener("click", () => {
    item.remove();
    refresh();
  });
  snakes.append(item);
  describe();
  refresh();
}

function refresh() {
  const joins = $("join").checked;
  $("add").disabled = snakes.children.length + (joins ? 1 : 0) >= MAX_SNAKES;
  $("name-row").hidden = !joins;
  $("delay-row").hidden = !joins;
  previewGame();
}

/** Returns the request for the game that the form describes. */
function formRequest() {
  const size = Number($("size").value);
  const request = {
    snakes: [...snakes.querySelectorAll(".snake")].map((choice) => choice.value.trim()),
    width: size, height: size,
    ruleset: $("ruleset").value, map: $("map").value,
    timeout: Number($("timeout").value), max_turns: Number($("max-turns").value),
  };
  if ($("view-radius").value) request.view_radius = Number($("view-radius").value);
  if ($("join").checked) {
    request.keyboard_player = $("keyboard-player").value;
    request.turn_delay_ms = Number($("turn-delay").value);
  }
  return request;
}

/** Shows the first position of the game, or the reason why the game is invalid. */
async function previewGame() {
  $("map-description").textContent = mapDescriptions[$("map").value];
  if (readOnly) return;
  numPreviews += 1;
  const number = numPreviews; // responses to earlier requests may arrive after later responses
  try {
    const game = await readJson(post($("new-game").dataset.preview, formRequest()));
    if (number !== numPreviews) return;
    new BoardView($("preview"), game).draw(game.frame);
    $("error").textContent = "";
  } catch (error) {
    if (number === numPreviews) $("error").textContent = error.message;
  }
}

async function startGame(event) {
  event.preventDefault();
  $("error").textContent = "";
  $("start").disabled = true;
  try {
    const sent = await readJson(post(location.pathname, formRequest()));
    location.assign(`${sent.page}#play`);
  } catch (error) {
    $("error").textContent = error.message;
    $("start").disabled = false;
  }
}

for (const name of JSON.parse($("opponents").textContent)) addSnake(name);
$("new-game").addEventListener("change", previewGame);
$("add").addEventListener("click", () => addSnake("cautious"));
$("join").addEventListener("change", refresh);
$("new-game").addEventListener("submit", startGame);
addEventListener("pageshow", () => { $("start").disabled = readOnly; });
refresh();
