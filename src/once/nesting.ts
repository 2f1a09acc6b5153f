import { AsyncLocalStorage } from 'node:async_hooks'
import { DeclarationError } from '../errors'

/** Work that is under way, and what it was called in. */
interface Frame {
  /** The table of tokens. */
  readonly of: object
  readonly token: string
  readonly outer: Frame | undefined
  isOver: boolean
}

const frames = new AsyncLocalStorage<Frame>()

/** Work that is over is released: otherwise work that schedules its next run would keep all earlier runs. */
function underWay(): Frame | undefined {
  let frame = frames.getStore()
  while (frame?.isOver) frame = frame.outer
  return frame
}

/** Runs work; code inside knows that the work is under way. */
export async function insideOf<T>(of: object, token: string, work: () => Promise<T>): Promise<T> {
  const frame: Frame = { of, token, outer: underWay(), isOver: false }
  try {
    return await frames.run(frame, work)
  } finally {
    // Code that the work started and did not await goes on.
    frame.isOver = true
  }
}

/**
 * Work that waits for its own token would wait for ever: on another connection the database knows of no deadlock.
 *
 * @throws DeclarationError
 */
export function requireNotInside(of: object, token: string, what: string): void {
  for (let frame = frames.getStore(); frame; frame = frame.outer) {
    if (frame.of === of && frame.token === token && !frame.isOver) {
      throw new DeclarationError(
        `${what}(): the work calls it with its own token and would wait for itself. Use another token.`,
      )
    }
  }
}
