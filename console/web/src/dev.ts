// What `tidings dev` says of itself and lets be done: state, trouble, notifications. The forms are those of cmd/tidings.

export interface DeviceInfo {
  device: string;
  kind: "phone" | "laptop";
  /** The base path of its line: …/v1/ws is the socket, …/readyz says whether there is somebody. */
  line: string;
}

export interface Person {
  user: string;
  name: string;
  token: string;
  devices: DeviceInfo[];
}

export interface LineState {
  online: boolean;
  gateway: string;
  shuffle: boolean;
  lose_reply: boolean;
}

export interface GatewayState {
  name: string;
  state: "up" | "draining" | "down";
  pid: number;
}

export interface DevState {
  conv: string;
  people: Person[];
  lines: Record<string, LineState>;
  gateways: GatewayState[];
  backup: { at: string } | null;
  busy: "" | "backup" | "restore";
  console: string;
  key: string;
  /** Newest last. */
  log: { at: string; text: string }[];
}

/** A change of a line; cut happens once. */
export interface LineChange {
  online?: boolean;
  cut?: true;
  lose_reply?: boolean;
  shuffle?: boolean;
}

export interface NewNotification {
  user: string;
  channel: string;
  title: string;
  body: string;
  /** The provider accepts the next one, and does not answer. */
  silent: boolean;
}

export interface Attempt {
  n: number;
  action: string;
  outcome?: string;
  detail?: string;
  started_at: string;
  finished_at?: string;
}

export interface Task {
  id: string;
  channel: string;
  state: string;
  review: boolean;
  in_doubt: boolean;
  attempts?: Attempt[];
}

export interface Notification {
  user: string;
  event_key: string;
  title: string;
  body: string;
  created_at: string;
  tasks?: Task[];
}

/** One line of the newest tasks of a user. */
export interface TaskSummary {
  task: string;
  user: string;
  event_key: string;
  channel: string;
  state: string;
  needs_review: boolean;
}

async function ask<T>(method: "GET" | "POST", path: string, body?: object): Promise<T> {
  const answer = await fetch(path, {
    method, cache: "no-store", ...(body ? { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) } : {}),
  });
  const text = await answer.text();
  if (answer.ok) return (text === "" ? {} : JSON.parse(text)) as T;
  let message = `${method} ${path}: ${answer.status}`;
  try {
    message = (JSON.parse(text) as { message?: string }).message || message;
  } catch {
    // Not of ours: the status has to do.
  }
  throw new Error(message);
}

const find = (query: Record<string, string>): string => `/dev/notifications?${new URLSearchParams(query)}`;

export const state = (): Promise<DevState> => ask("GET", "/dev/state");
export const changeLine = (device: string, change: LineChange): Promise<LineState> => ask("POST", `/dev/lines/${encodeURIComponent(device)}`, change);
export const gateway = (name: string, what: "kill" | "drain" | "start"): Promise<unknown> => ask("POST", `/dev/gateways/${encodeURIComponent(name)}`, { do: what });
export const backup = (): Promise<unknown> => ask("POST", "/dev/backup", {});
export const restore = (): Promise<unknown> => ask("POST", "/dev/restore", {});
export const notify = (n: NewNotification): Promise<{ event_key: string }> => ask("POST", "/dev/notifications", n);
export const notification = (user: string, eventKey: string): Promise<Notification> => ask("GET", find({ user, event_key: eventKey }));
export const newest = (user: string): Promise<{ tasks: TaskSummary[] }> => ask("GET", find({ user }));
