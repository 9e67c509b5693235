// Fetches a game by its id or address, and goes to its page.

for (const form of document.querySelectorAll("form[data-fetch]")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const status = form.querySelector("[role=status]");
    status.textContent = "fetching …";
    const answer = await fetch(form.dataset.fetch, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ game: form.elements.game.value.trim() }),
    });
    const told = await answer.json();
    if (answer.ok) location.assign(told.page);
    else status.textContent = told.error;
  });
}
