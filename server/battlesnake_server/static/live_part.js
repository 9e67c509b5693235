// Live section of a page: updates the section when the JSON changes, and handles the buttons.
//
//   <div id="NAME" data-live="/address.json">   is replaced with the section of a new copy of the page
//   <button data-post="/address" data-body="{}" data-confirm="Really?">
//
// Scripts that draw into the section listen for the document's "live" event and draw again.

import { post, readJson } from "./requests.js";

const POLL_MS = 5000;
const FOCUSABLE = "a, button, input, select, [tabindex]";
const NO_RESPONSE = "the server does not respond";
let lastJson = "";

const part = () => document.querySelector("[data-live]");
const status = document.getElementById("live-status");

async function send(button) {
  if (button.dataset.confirm && !window.confirm(button.dataset.confirm)) return;
  try {
    await readJson(post(button.dataset.post, JSON.parse(button.dataset.body)));
    status.textContent = "";
    await poll();
  } catch (error) {
    status.textContent = error.message;
  }
}

async function poll() {
  const json = await (await fetch(part().dataset.live)).text();
  if (json === lastJson) return;
  // The first poll replaces the section too, because the page may be older than the JSON.
  const page = new DOMParser().parseFromString(
    await (await fetch(window.location.href)).text(), "text/html");
  const focused = [...part().querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
  part().replaceWith(document.adoptNode(page.querySelector("[data-live]")));
  document.dispatchEvent(new Event("live"));
  if (focused >= 0) part().querySelectorAll(FOCUSABLE)[focused]?.focus();
  lastJson = json;
}

async function pollForever() {
  try {
    if (!document.hidden) {
      await poll();
      if (status.textContent === NO_RESPONSE) status.textContent = "";
    }
  } catch {
    status.textContent = NO_RESPONSE;
  }
  setTimeout(pollForever, POLL_MS);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-post]");
  if (button) send(button);
});
pollForever();
