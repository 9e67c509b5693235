// Buttons that copy the page's address, for sending it on.

for (const button of document.querySelectorAll("button[data-copy]")) {
  const words = button.textContent;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(window.location.href);
      button.textContent = "Copied";
    } catch { // only secure pages, and those of this machine, have a clipboard
      window.prompt("The address of this page", window.location.href);
    }
    setTimeout(() => { button.textContent = words; }, 2000);
  });
}
