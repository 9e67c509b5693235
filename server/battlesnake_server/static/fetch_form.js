// Form that fetches a game by id or address and opens the game's page.

import { post, readJson } from "./requests.js";

for (const form of document.querySelectorAll("form[data-fetch]")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const status = form.querySelector("[role=status]");
    status.textContent = "fetching …";
    try {
      const game = form.elements.game.value.trim();
      location.assign((await readJson(post(form.dataset.fetch, { game }))).page);
    } catch (error) {
      status.textContent = error.message;
    }
  });
}
