import { DeclarationError } from '../errors'
import { kindOf } from '../options'

/** Items as a flow reads them: several at a time, as they arrive. */
export interface Source<Item> {
  /** The next ones; undefined once there are no more. */
  readonly next: () => Promise<Iterable<Item> | undefined>
  /** Tells the producer that no more items are wanted. */
  readonly end: () => Promise<void>
}

/**
 * @param operation as the caller wrote it
 * @throws DeclarationError for what cannot be iterated; also for a string, whose characters are not inputs
 */
export function sourceOf<Item>(operation: string, items: Iterable<Item> | AsyncIterable<Item>): Source<Item> {
  const given: unknown = items
  if (typeof given !== 'object' || given === null) throw notIterable(operation, given)
  if (Symbol.asyncIterator in given) return sourceOfOne((given as AsyncIterable<Item>)[Symbol.asyncIterator]())
  if (Symbol.iterator in given) return sourceOfAll((given as Iterable<Item>)[Symbol.iterator]())
  throw notIterable(operation, given)
}

const notIterable = (operation: string, given: unknown): DeclarationError =>
  new DeclarationError(
    `${operation}(): expected an iterable or an async iterable of objects, got ${kindOf(given)}. ` +
      `Pass a generator, a readable stream in object mode, or an array.`,
  )

function sourceOfOne<Item>(iterator: AsyncIterator<Item>): Source<Item> {
  return {
    next: async () => {
      const { done, value } = await iterator.next()
      return done === true ? undefined : [value]
    },
    end: async () => void (await iterator.return?.()),
  }
}

function sourceOfAll<Item>(iterator: Iterator<Item>): Source<Item> {
  let read = false
  // Without its `return`: a loop that ends early leaves that to `end`.
  const rest: Iterable<Item> = { [Symbol.iterator]: () => ({ next: () => iterator.next() }) }
  return {
    next: async () => {
      if (read) return undefined
      read = true
      return rest
    },
    end: async () => void iterator.return?.(),
  }
}
