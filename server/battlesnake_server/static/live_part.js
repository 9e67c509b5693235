// Part of a page as it is now, drawn anew when the JSON behind it changes; and buttons in it.
//
//   <div id="NAME" data-live="/address.json">   is fetched again with its page
//   <button data-post="/address" data-body="{}" data-ask="Really?">
//
// A script that has drawn into the part hears the document's event "live", and draws again.

const EVERY = 5000; // milliseconds between two looks
const FOCUSABLE = "a, button, input, [tabindex]";
let shown = "";

const part = () => document.querySelector("[data-live]");
const tell = (text) => {
  const said = document.getElementById("said");
  if (said) said.textContent = text;
};

async function post(button) {
  if (button.dataset.ask && !window.confirm(button.dataset.ask)) return;
  const answer = await fetch(button.dataset.post, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: button.dataset.body,
  });
  tell(answer.ok ? "" : (await answer.json()).error);
  if (answer.ok) await look();
}

async function look() {
  const now = await (await fetch(part().dataset.live)).text();
  if (now === shown) return;
  if (shown) {
    const page = new DOMParser().parseFromString(
      await (await fetch(window.location.href)).text(), "text/html");
    const focused = [...part().querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
    part().replaceWith(document.adoptNode(page.querySelector("[data-live]")));
    document.dispatchEvent(new Event("live"));
    if (focused >= 0) part().querySelectorAll(FOCUSABLE)[focused]?.focus();
  }
  shown = now;
}

async function keepLooking() {
  try {
    if (!document.hidden) await look();
  } catch {
    tell("the server does not answer");
  }
  setTimeout(keepLooking, EVERY);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-post]");
  if (button) post(button);
});
keepLooking();
