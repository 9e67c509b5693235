// Buttons that copy the page's address with the fragment in the attribute data-copy, or with
// data-embed the HTML that embeds that address.

for (const button of document.querySelectorAll("button[data-copy]")) {
  const label = button.textContent;
  button.addEventListener("click", async () => {
    const address = new URL(button.dataset.copy, window.location.href).href;
    const text = "embed" in button.dataset
      ? `<iframe src="${address.replaceAll("&", "&amp;")}" title="Battlesnake" width="480" height="760"></iframe>` : address;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch { // browsers allow clipboard access only on HTTPS pages and on localhost
      window.prompt("Address of this page", text);
    }
    setTimeout(() => { button.textContent = label; }, 2000);
  });
}
