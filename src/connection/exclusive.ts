import { AsyncResource } from 'node:async_hooks'

export type ClientQuery = (...args: readonly unknown[]) => unknown

/** Keeps a connection to this call alone. */
export interface Exclusive {
  readonly query: ClientQuery
  /** Sends what others have requested meanwhile, in their order. */
  readonly end: () => void
}

/** Which statements pass while the connection is held, and what becomes of the others. */
export interface ExclusiveRules {
  /** The code that sends a statement may. */
  readonly passes: () => boolean
  /** A statement that may pass is sent; returns what to call when its answer has come. */
  readonly sends: () => () => void
  /** A statement waits; returns what to call when it waits no longer. `fail` replaces it with an error. */
  readonly waits: (statement: readonly unknown[], fail: (error: Error) => void) => () => void
}

/** A statement that waits. */
interface Waiting {
  readonly send: () => void
  readonly fail: (error: Error) => void
  over: () => void
}

/**
 * Keeps every statement but ours from the connection: one of the caller's own between our savepoint and a rollback to
 * it would be undone, although the caller was notified that it was done.
 *
 * @param rules @default nobody passes, and all wait until the end
 */
export function useExclusively(holder: { query: ClientQuery }, rules?: ExclusiveRules): Exclusive {
  const { query } = holder
  const own = Object.hasOwn(holder, 'query')
  const waiting = new Set<Waiting>()
  let ended = false
  const wait = (args: readonly unknown[], { send, fail }: Pick<Waiting, 'send' | 'fail'>): void => {
    // As whoever sent it: it may have to wait for the end of a section around ours.
    const one: Waiting = { send: AsyncResource.bind(send), fail, over: nothing }
    waiting.add(one)
    const give = (error: Error): void => {
      if (waiting.delete(one)) fail(error)
    }
    one.over = rules?.waits(args, give) ?? nothing
  }
  const guarded: ClientQuery = (...args) => {
    const now = (): unknown => query.apply(holder, [...args])
    const [first] = args
    // What it refuses, it refuses at once.
    if (ended || first === null || first === undefined) return now()
    if (rules?.passes()) return notifyAfter(now(), rules.sends())
    const submittable = typeof first === 'object' && 'submit' in first
    const callback = args.map(callbackOf).find((one) => one !== undefined)
    if (submittable || callback) {
      const fail = failing(first, callback)
      wait(args, { send: () => void now(), fail })
      return submittable ? first : undefined
    }
    return new Promise((resolve, reject) => {
      const send = (): void => {
        try {
          resolve(now())
        } catch (error) {
          reject(error)
        }
      }
      wait(args, { send, fail: reject })
    })
  }
  holder.query = guarded
  return {
    query: query.bind(holder),
    end: () => {
      ended = true
      // Somebody may have put another in front of ours meanwhile, which stays and calls it.
      if (holder.query === guarded && own) holder.query = query
      else if (holder.query === guarded) Reflect.deleteProperty(holder, 'query')
      for (const { send, over } of waiting) {
        over()
        send()
      }
    },
  }
}

/** Tells a query object, or a callback, of an error. */
const failing =
  (first: unknown, callback: Callback | undefined) =>
  (error: Error): void => {
    const submittable = typeof first === 'object' && first !== null && 'handleError' in first
    if (submittable && typeof first.handleError === 'function') first.handleError(error)
    else callback?.(error)
  }

function notifyAfter(answer: unknown, answered: () => void): unknown {
  if (answer instanceof Promise) answer.then(answered, answered)
  else answered()
  return answer
}

function nothing(): void {}

type Callback = (error: unknown) => unknown

function callbackOf(argument: unknown): Callback | undefined {
  if (typeof argument === 'function') return argument as Callback
  if (typeof argument !== 'object' || argument === null || !('callback' in argument)) return undefined
  return typeof argument.callback === 'function' ? (argument.callback as Callback) : undefined
}
