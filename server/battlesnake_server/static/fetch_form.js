// Form that fetches a game by id or address and opens the game's page.

for (const form of document.querySelectorAll("form[data-fetch]")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const status = form.querySelector("[role=status]");
    status.textContent = "fetching …";
    const response = await fetch(form.dataset.fetch, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ game: form.elements.game.value.trim() }),
    });
    const sent = await response.json();
    if (response.ok) location.assign(sent.page);
    else status.textContent = sent.error;
  });
}
