// The league's page: its table as it stands, and what the operator may do.

import { $ } from "./player.js";

const EVERY = 5000; // milliseconds between two looks

async function post(button) {
  if (button.dataset.ask && !window.confirm(button.dataset.ask)) return;
  const answer = await fetch(button.dataset.post, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: button.dataset.body,
  });
  const told = await answer.json();
  $("told").textContent = answer.ok ? "" : told.error;
  if (answer.ok) await look();
}

let shown = "";

async function look() {
  const now = await (await fetch($("league").dataset.address)).text();
  if (now === shown) return;
  const page = new DOMParser().parseFromString(
    await (await fetch(window.location.href)).text(), "text/html");
  const focused = document.activeElement?.dataset?.body;
  $("league").replaceWith(document.adoptNode(page.getElementById("league")));
  if (focused) document.querySelector(`button[data-body='${CSS.escape(focused)}']`)?.focus();
  shown = now;
}

async function keepLooking() {
  try {
    if (!document.hidden) await look();
  } catch {
    $("told").textContent = "the league does not answer";
  }
  setTimeout(keepLooking, EVERY);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-post]");
  if (button) post(button);
});
keepLooking();
