/** What Node has beside the client: an outbox in a file. */
export { FileStorage } from "./node/file.js";
