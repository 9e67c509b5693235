// Buttons that copy the page's address with the fragment in the attribute data-copy.

for (const button of document.querySelectorAll("button[data-copy]")) {
  const label = button.textContent;
  button.addEventListener("click", async () => {
    const address = new URL(button.dataset.copy, window.location.href).href;
    try {
      await navigator.clipboard.writeText(address);
      button.textContent = "Copied";
    } catch { // browsers allow clipboard access only on HTTPS pages and on localhost
      window.prompt("Address of this page", address);
    }
    setTimeout(() => { button.textContent = label; }, 2000);
  });
}
