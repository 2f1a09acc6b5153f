import { AsyncLocalStorage } from 'node:async_hooks'
import type { EntityManager } from 'typeorm'
import { type EntityText, entityTextOf, operate, type Operation, tokenStatements } from '../core'
import { DeclarationError } from '../errors'
import { OnceToken } from './once-token'

/** The table of tokens of one DataSource, and the statements for it. */
export interface Tokens extends ReturnType<typeof tokenStatements> {
  readonly entityText: EntityText
  /** Hashes of tokens that this process was recently asked for. */
  readonly requested: Set<string>
  /** By token: the end of a transaction that works for it. */
  readonly underWay: Map<string, Promise<void>>
}

const MAX_REQUESTED = 1_000

/** Remembers a hash. @returns whether it was known */
export function askAgain({ requested }: Tokens, hash: string): boolean {
  if (requested.has(hash)) return true
  requested.add(hash)
  const [oldest] = requested
  if (requested.size > MAX_REQUESTED && oldest !== undefined) requested.delete(oldest)
  return false
}

const ofTexts = new WeakMap<EntityText, Tokens>()

/** @throws DeclarationError if this is not an EntityManager, and if `OnceToken` is not among the entities */
export function tokensOf(manager: EntityManager): Tokens {
  const entityText = textOfTokens(manager)
  const known = ofTexts.get(entityText) ?? makeTokens(entityText)
  ofTexts.set(entityText, known)
  return known
}

function textOfTokens(manager: EntityManager): EntityText {
  try {
    return entityTextOf(manager, OnceToken, undefined)
  } catch (error) {
    // By its name: two copies of TypeORM may be loaded.
    if (!(error instanceof Error) || error.name !== 'EntityMetadataNotFoundError') throw error
    throw new DeclarationError(
      'OnceToken is not among the entities of this DataSource. Add it, and run migration:generate.',
    )
  }
}

function makeTokens(entityText: EntityText): Tokens {
  const { metadata, declaration } = entityText
  const statements = tokenStatements(
    declaration.table,
    (property) => metadata.columns.find(({ propertyName }) => propertyName === property)?.databaseName ?? property,
  )
  return { ...statements, entityText, requested: new Set(), underWay: new Map() }
}

/**
 * Runs an operation on tokens, where one transaction claims and answers: the number of a transaction, by which an answer
 * knows its claim, says nothing on another node.
 *
 * @throws SchemaDriftError, UnsupportedDatabaseError
 */
export async function withTokens<Result>(
  manager: EntityManager,
  { entityText: { declaration: text } }: Tokens,
  run: (operation: Operation) => Promise<Result>,
): Promise<Result> {
  const undistributed =
    `Table "${text.table.table}" of tokens is distributed by Citus, and an answer is stored only by the transaction ` +
    `that claimed its token. Make the table again on the coordinator, undistributed, and call once() there.`
  return await operate(manager, { text, undistributed }, run)
}

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
