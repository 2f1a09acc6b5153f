import { TextTakenError } from '../errors'
import { isSerializationError, SQLSTATE, serverError } from '../sql/sqlstate'
import type { WireRow } from '../sql/statements'
import { requireCurrentSnapshot } from '../connection/whole-transaction'
import { guardError } from '../typeorm/guard-errors'
import { allOrNothing, type Step } from '../connection/all-or-nothing'
import { Attempts } from './attempts'
import type { Session } from '../connection/session'
import { type RequestedName, takenNames } from './requested-names'
import { type RequestedText, takenTexts } from './taken-texts'
import { refusedText } from '../typeorm/refused-text'
import { asQueryFailedError } from '../typeorm/query-failed-error'
import { takenByTriggers } from '../typeorm/taken-names'
import { takenKeys, type WrittenRow } from './taken-keys'

/** All that a call writes, and the texts that it must have for itself. */
export interface Writing {
  readonly steps: readonly Step<WireRow>[]
  /** The same at less cost, unless a text shares its hash with another one: tried once. @default the steps themselves */
  readonly quick?: readonly Step<WireRow>[] | undefined
  readonly requested: readonly RequestedText[]
  readonly names: readonly RequestedName[]
  /** For the primary keys and ordinary unique columns that they bring. @default none */
  readonly rows?: readonly WrittenRow[]
  /** Of `numberIndexes`. @default none */
  readonly numbers?: ReadonlySet<string>
}

/**
 * Writes everything or nothing. Refused by an index, it asks once which texts are taken; where none is, the holder is
 * gone by now or another text of equal hash was faster, and it tries again.
 *
 * @returns the rows of each step
 * @throws TextTakenError with every taken text, name, number, primary key and unique column
 * @throws ImmutableTextError, ChainLimitError, AttemptsExhaustedError, TransactionAbortedError
 * @throws QueryFailedError for everything else
 */
export async function writeOrFail(
  session: Session,
  { steps, quick, ...wanted }: Writing,
): Promise<readonly (readonly WireRow[])[]> {
  const { requested, names } = wanted
  const attempts = new Attempts(session, requested[0]?.entityText.declaration.name ?? names[0]?.name.name ?? '')
  const written = quick && (await allOrNothing(session, quick).catch((error: unknown) => noneIfShared(session, error)))
  if (written) return written
  for (;;) {
    try {
      return await allOrNothing(session, steps)
    } catch (error) {
      if (!attempts.mayHelp(error)) await requireRetry(session, wanted, error)
      await attempts.next(error)
    }
  }
}

/** Refused by the index, or by the check of a text that a trigger has changed since its hash was made; or by others. */
function noneIfShared({ inTransaction }: Session, error: unknown): undefined {
  const { code } = serverError(error) ?? {}
  if (code === SQLSTATE.uniqueViolation || code === SQLSTATE.checkViolation) return undefined
  if (!inTransaction && isSerializationError(error)) return undefined
  throw error
}

const NONE: ReadonlySet<string> = new Set()

const OR_ANOTHER_VALUE = 'Use the row that holds it, or give another value.'

/** @throws TextTakenError for all that is taken; where only ordinary columns are, it is TypeORM's error as well */
async function requireFree(
  session: Session,
  { requested, names, rows }: Required<Pick<Writing, 'requested' | 'names' | 'rows'>>,
  error: unknown,
): Promise<void> {
  const texts = [...(await takenTexts(session, requested)), ...(await takenNames(session, names))]
  // A name that is free by now was not when the triggers looked.
  const found = texts.length > 0 ? texts : (takenByTriggers(error, session.dataSource) ?? [])
  const keys = await takenKeys(session, rows)
  if (found.length + keys.length === 0) return
  const taken = [...found, ...keys].toSorted((left, right) => left.row - right.row)
  const explained = new TextTakenError(taken, error, keys.length > 0 ? OR_ANOTHER_VALUE : undefined)
  throw found.length === 0 && error instanceof Error ? asQueryFailedError(explained, error) : explained
}

/** @throws what the error means, unless the same may succeed when it is tried again */
async function requireRetry(
  session: Session,
  { requested, names, numbers = NONE, rows = [] }: Omit<Writing, 'steps'>,
  error: unknown,
): Promise<void> {
  const declarations = requested.map(({ entityText }) => entityText.declaration)
  const refused = serverError(error)
  const isOurs = requested.length + names.length + numbers.size + rows.length > 0
  if (refused?.code !== SQLSTATE.uniqueViolation || !isOurs) throw guardError(error, declarations) ?? error
  await requireFree(session, { requested, names, rows }, error)
  const { constraint = '' } = refused
  const isOfText = error instanceof Error && refusedText(error, declarations) !== undefined
  if (!numbers.has(constraint) && !isOfText) throw error
  await requireCurrentSnapshot(session, error)
}
