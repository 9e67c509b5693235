// Requests of pages to the server, in JSON.

/** Sends JSON in a POST request; returns the promise of the response. */
export const post = (address, body = {}) => fetch(address, {
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
});

/** Returns the JSON of a request's response; throws the server's message if the request was rejected. */
export async function readJson(request) {
  const response = await request;
  const sent = await response.json();
  if (!response.ok) throw new Error(sent.error);
  return sent;
}

export const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
