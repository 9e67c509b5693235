// Requests of pages to the server, in JSON.

/** Sends JSON in a POST request; returns the promise of the response. */
export const post = (address, body = {}) => fetch(address, {
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
});

/** Returns a request's response; throws the server's message if the request was rejected. */
export async function check(request) {
  const response = await request;
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({})); // an error page is not JSON
  throw new Error(error ?? `the server responded with status ${response.status}`);
}

/** Returns the JSON of a request's response; see `check`. */
export const readJson = async (request) => (await check(request)).json();

export const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
