// A process that holds a lock until it is killed: hold.js PATH PLATFORM.

import { lock } from "../../src/node/lock.js";

await lock(process.argv[2] as string, process.argv[3] as NodeJS.Platform);
setInterval(() => {}, 1000);
process.send?.("held");
