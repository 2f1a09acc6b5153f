import { AsyncResource } from 'node:async_hooks'

export type Query = (...args: readonly unknown[]) => unknown

/** Answers nobody but us. */
export interface Hold {
  readonly query: Query
  /** Sends what others have asked meanwhile, in their order. */
  readonly end: () => void
}

/**
 * Keeps every statement but ours from the connection: one of the caller's own between our savepoint and a rollback to
 * it would be undone, although the caller was told that it was done.
 *
 * @param passes whether the code that sends a statement may. @default nobody's
 */
export function holdOthers(holder: { query: Query }, passes: () => boolean = () => false): Hold {
  const { query } = holder
  const own = Object.hasOwn(holder, 'query')
  const waiting: (() => void)[] = []
  let ended = false
  const held: Query = (...args) => {
    const now = (): unknown => query.apply(holder, [...args])
    const [first] = args
    // What it refuses, it refuses at once.
    if (ended || first === null || first === undefined || passes()) return now()
    const submittable = typeof first === 'object' && 'submit' in first
    if (!submittable && !args.some(isCallback)) {
      return new Promise((resolve, reject) => {
        const send = (): void => {
          try {
            resolve(now())
          } catch (error) {
            reject(error)
          }
        }
        // As whoever sent it: it may have to wait for the end of a turn around ours.
        waiting.push(AsyncResource.bind(send))
      })
    }
    waiting.push(AsyncResource.bind(() => void now()))
    return submittable ? first : undefined
  }
  holder.query = held
  return {
    query: query.bind(holder),
    end: () => {
      ended = true
      // Somebody may have put another in front of ours meanwhile, which stays and calls it.
      if (holder.query === held && own) holder.query = query
      else if (holder.query === held) Reflect.deleteProperty(holder, 'query')
      for (const send of waiting) send()
    },
  }
}

const isCallback = (argument: unknown): boolean =>
  typeof argument === 'function' ||
  (typeof argument === 'object' &&
    argument !== null &&
    'callback' in argument &&
    typeof argument.callback === 'function')
