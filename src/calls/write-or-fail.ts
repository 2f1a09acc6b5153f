import { allOrNothing, requireCurrentSnapshot, type Step } from '../connection/transactions'
import type { Session } from '../connection/session'
import { HashCollisionError, TextTakenError } from '../errors'
import { numbersOfTable } from '../registry/registry'
import type { WireRow } from '../sql/find'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import {
  asQueryFailedError,
  findTextHolder,
  guardError,
  type QueryRows,
  type RefusedText,
  refusedText,
  takenByTriggers,
  takenNamesError,
  textError,
  UNKNOWN_HOLDER,
} from '../typeorm/refusals'
import { type EntityText, readyText } from './entity-text'
import { Attempts } from './attempts'
import { ensureNamesReady, type RequestedName, requestedNames } from './requested-names'
import type { RowValues } from './row-values'
import { type RequestedText, takenKeys, takenNames, takenTexts, type WrittenRow } from './taken'
import { inRow, requireNoNul, valueIn } from './values'

/**
 * Returns the texts and names of rows. Everything is checked before any SQL.
 *
 * @throws TextRejectedError, DeclarationError, SchemaDriftError, UnsupportedDatabaseError
 */
export async function requestedOf<Row extends WrittenRow, Text extends RequestedText>(
  session: Session,
  rows: readonly Row[],
  textsOf: (row: Row) => (Omit<Text, 'entityText'> & { readonly entityText: EntityText })[],
): Promise<{ readonly requested: readonly Text[]; readonly names: readonly RequestedName[] }> {
  const names = rows.flatMap(({ columns, position, values, id }) =>
    inRow(position, () => {
      for (const column of columns.metadata.columns) {
        if (!column.transformer) requireNoNul(column, valueIn(column, values))
      }
      return requestedNames(columns, position, values, id)
    }),
  )
  const requested: Text[] = []
  for (const one of rows.flatMap((row) => inRow(row.position, () => textsOf(row))))
    requested.push({ ...one, entityText: await readyText(session, one.entityText) } as Text)
  await ensureNamesReady(session, names)
  return { requested, names }
}

/** The steps of a call, and the texts that must be free for it. */
interface Writing {
  readonly steps: readonly Step<WireRow>[]
  /** Returns the steps of every later attempt, if the first steps fit only texts that share no hash. */
  readonly later?: (() => readonly Step<WireRow>[]) | undefined
  readonly requested: readonly RequestedText[]
  readonly names: readonly RequestedName[]
  /** The rows whose primary keys and ordinary unique columns must be free. @default none */
  readonly rows?: readonly WrittenRow[]
  /** Whether a text or name that one change gives up is free for every other one. @default for later ones */
  readonly atOnce?: boolean
}

/**
 * Writes everything or nothing. If an index refuses, it looks up once which texts are taken. If none is, the holder was
 * removed meanwhile or another text with equal hash was faster, and it tries again.
 *
 * @returns the rows of each step
 * @throws TextTakenError with every taken text, name, number, primary key and unique column
 * @throws ImmutableTextError, ChainLimitError, AttemptsExhaustedError, TransactionAbortedError
 * @throws QueryFailedError for everything else
 */
export async function writeOrFail(
  session: Session,
  { steps, later, ...wanted }: Writing,
): Promise<readonly (readonly WireRow[])[]> {
  const { requested, names } = wanted
  const attempts = new Attempts(session, requested[0]?.entityText.declaration.name ?? names[0]?.name.name ?? '')
  const written =
    later &&
    (await allOrNothing(session, steps).catch((error: unknown) => {
      if (REFUSED.has(serverError(error)?.code ?? '') || attempts.mayHelp(error)) return undefined
      throw error
    }))
  if (written) return written
  const again = later?.() ?? steps
  for (;;) {
    try {
      return await allOrNothing(session, again)
    } catch (error) {
      if (!attempts.mayHelp(error)) await requireRetry(session, wanted, error)
      await attempts.next(error)
    }
  }
}

/** The codes of indexes and checks. Our check refuses a text that a trigger changed after its hash was computed. */
const REFUSED: ReadonlySet<string> = new Set([SQLSTATE.uniqueViolation, SQLSTATE.checkViolation])

const OR_ANOTHER_VALUE = 'Use the row that holds it, or give another value.'
const OR_SWAP =
  'Use the row that holds the text, or give another text. To swap texts, change both rows in one updateOrFail().'

/** @throws TextTakenError for all that is taken; if only ordinary columns are, it is TypeORM's error as well */
async function requireFree(
  session: Session,
  { requested, names, rows, atOnce }: Required<Pick<Writing, 'requested' | 'names' | 'rows' | 'atOnce'>>,
  error: unknown,
): Promise<void> {
  const texts = [...(await takenTexts(session, requested, atOnce)), ...(await takenNames(session, names, atOnce))]
  // A name that is free by now was taken when the triggers looked.
  const found = texts.length > 0 ? texts : takenByTriggers(error, session.dataSource)
  const keys = await takenKeys(session, rows)
  if (found.length + keys.length === 0) return
  const taken = [...found, ...keys].toSorted((left, right) => left.row - right.row)
  const isChange = requested.some(({ id }) => id) || names.some(({ key }) => key)
  const remedy = keys.length > 0 ? OR_ANOTHER_VALUE : isChange ? OR_SWAP : undefined
  const explained = new TextTakenError(taken, error, remedy)
  throw found.length === 0 && error instanceof Error ? asQueryFailedError(explained, error) : explained
}

/** @throws the explained error, unless another attempt may succeed */
async function requireRetry(
  session: Session,
  { requested, names, rows = [], atOnce = false }: Omit<Writing, 'steps'>,
  error: unknown,
): Promise<void> {
  const declarations = requested.map(({ entityText }) => entityText.declaration)
  const refused = serverError(error)
  const isOurs = requested.length + names.length + rows.length > 0
  if (refused?.code !== SQLSTATE.uniqueViolation || !isOurs) throw guardError(error, declarations) ?? error
  await requireFree(session, { requested, names, rows, atOnce }, error)
  const { constraint = '' } = refused
  const ofText = error instanceof Error ? refusedText(error, declarations) : undefined
  if (!ofText && !isOfNumber(rows, constraint)) throw error
  if (ofText) {
    const { declaration } = ofText
    const ofDeclaration = requested.filter(({ entityText }) => entityText.declaration === declaration)
    const texts = ofDeclaration.map(({ key }) => key.slice(declaration.scope.length))
    await requireNoCollision(session, ofText, texts)
  }
  await requireCurrentSnapshot(session, error)
}

/** @throws HashCollisionError if another text with equal hash has the number, and no guard sets the next */
export async function requireNoCollision(
  session: Session,
  refused: RefusedText,
  texts: readonly (readonly unknown[])[],
): Promise<void> {
  if (refused.declaration.table.guardless !== true) return
  const found = textError(refused, await findTextHolder(refused, storedRows(session), texts))
  if (found instanceof HashCollisionError) throw found
}

const storedRows =
  (session: Session): QueryRows =>
  async (...requested) =>
    await session.byTypeOrm(async (runner) => (await runner.query(...requested)) as Awaited<ReturnType<QueryRows>>)

/**
 * Returns the error with which find-or-create and upsert fail: a full chain, or another text of the entity that is
 * taken. The second is also TypeORM's `QueryFailedError`, as is a violation of any other index.
 */
export async function explain(
  session: Session,
  { declaration, otherTexts, dataSource }: EntityText,
  row: RowValues | undefined,
  failure: unknown,
): Promise<unknown> {
  const ofNames = takenNamesError(failure, dataSource)
  if (ofNames) return asQueryFailedError(ofNames, failure as Error)
  const ofGuard = guardError(failure, [declaration, ...otherTexts])
  const refused = failure instanceof Error ? refusedText(failure, otherTexts) : undefined
  if (ofGuard || !refused || !row) return ofGuard ?? failure
  const given = refused.declaration.table.text.map(
    ({ name }) => row.all[row.all.length - row.others.length + row.others.indexOf(name)],
  )
  const holder = await findTextHolder(refused, storedRows(session), [given]).catch(() => UNKNOWN_HOLDER)
  const explained = textError(refused, holder)
  return explained ? asQueryFailedError(explained, refused.error) : failure
}

/**
 * Whether it is the unique index of numbers that no row sets. Another attempt may succeed then, because the index may
 * refuse a row only because others were numbered meanwhile.
 */
function isOfNumber(rows: readonly WrittenRow[], index: string): boolean {
  const numbered = rows.flatMap(({ columns, values }) =>
    numbersOfTable(columns.metadata)
      .filter(({ table }) => table.index === index)
      .map(({ column }): unknown => column.getEntityValue(values) ?? null),
  )
  return numbered.length > 0 && numbered.every((given) => given === null)
}
