import {
  type DeepPartial,
  type EntityManager,
  type FindOptionsRelations,
  type ObjectLiteral,
  QueryFailedError,
} from 'typeorm'
import { DeclarationError, UniqueTextError } from '../errors'
import { isManager, kindOf, oneOf, RULE, type Rule, type Rules } from '../options'

/** Options of every operation. */
export interface ByOptions<Entity = ObjectLiteral> {
  /**
   * Which of the entity's texts, by the name of its property, or by `as`; required where it has several. No type
   * knows the names that `as` gives, so the compiler does not catch a misspelt one; the call throws DeclarationError
   * before any SQL.
   * @default the only one
   */
  // The second type takes every string, and lets an editor suggest the properties.
  readonly by?: Extract<keyof Entity, string> | (string & Record<never, never>)
}

/** What to load onto the result, as in `find`. Eager relations are always loaded. */
export interface LoadOptions<Entity = ObjectLiteral> {
  /**
   * Relations to load, in one more query for the whole call: `{ author: { pages: true } }`, or `['author.pages']`.
   * @default none but the eager ones
   */
  readonly relations?: FindOptionsRelations<Entity> | readonly string[]
  /** Load relations by a join, or each by a query of its own. @default that of the DataSource: join */
  readonly relationLoadStrategy?: 'join' | 'query'
}

/** What becomes of a softly deleted row that holds the text. */
export type DeletedOption = 'return' | 'restore' | 'throw'

/** Only for declarations without `ignoreDeleted`, whose softly deleted rows hold their texts. */
export interface DeletedOptions {
  /**
   * What becomes of a softly deleted row that holds the text: `'return'` gives it back as it is; `'restore'` clears its
   * delete date, as TypeORM's `restore()` does, and gives it back, not as created; `'throw'` throws TextTakenError with
   * its primary key. In a list, this applies to each row by itself.
   *
   * @default 'return'
   */
  readonly deleted?: DeletedOption
}

/** A tree of relations to load, of which some are also found or created. */
type NestedRelations<Entity> = {
  readonly [Name in keyof Entity]?:
    | 'findOrCreate'
    | (Name extends keyof FindOptionsRelations<Entity> ? FindOptionsRelations<Entity>[Name] : never)
}

/** What becomes of the relations of a row that is found or created. */
interface NestedOptions<Entity = ObjectLiteral> extends Omit<LoadOptions<Entity>, 'relations'> {
  /**
   * Relations to load, as in `find`.
   *
   * `'findOrCreate'` for one of them, or in place of them all: new objects that the values bring there, and all that
   * these bring, become rows too. Those whose class has a unique text are found or created by it, others are saved. The
   * result has them. A row that is found keeps its relations, and nothing is created for it; the result has the stored
   * relations.
   *
   * @default eager relations are loaded, and a new object in a relation is refused
   */
  readonly relations?: LoadOptions<Entity>['relations'] | NestedRelations<Entity> | 'findOrCreate'
}

/** How far a call with many inputs has come. */
export interface FindOrCreateProgress {
  /** Inputs whose result is known; the others count among them. */
  readonly done: number
  /** How many rows were created. */
  readonly created: number
  /** Inputs that have an error at their index. */
  readonly rejected: number
}

/** Options for calls with many inputs. */
export interface ProgressOptions {
  /**
   * Once aborted, no further batch is sent, and the call throws its `reason` when those at the server have ended. What
   * was sent stays: outside a transaction it is committed, and a caller's transaction stays usable.
   *
   * @default none
   */
  readonly signal?: AbortSignal | undefined
  /**
   * Called after each batch, and once where all inputs are refused before there is one. What it throws ends the call as
   * an aborted signal does.
   *
   * @default none
   */
  readonly onProgress?: ((progress: FindOrCreateProgress) => void) | undefined
}

/** Options of `findOrCreate`. */
export interface FindOrCreateOptions<Entity = ObjectLiteral>
  extends ByOptions<Entity>, NestedOptions<Entity>, DeletedOptions {
  /**
   * Values that are used only when the row is created, beside those that the row is asked for with; or a function that
   * returns them. It is called only when the row is missing, once, whatever the number of attempts, and while this call
   * holds neither a lock nor a pooled connection, so it may take its time. If someone else creates the row meanwhile,
   * that row is found and the values are not used. What it throws is thrown, and nothing is written.
   *
   * @default none
   */
  readonly create?: DeepPartial<Entity> | (() => DeepPartial<Entity> | Promise<DeepPartial<Entity>>)
}

/** Options of `findOrCreateMany`. */
export interface FindOrCreateManyOptions<Entity = ObjectLiteral>
  extends ByOptions<Entity>, NestedOptions<Entity>, DeletedOptions, ProgressOptions {
  /**
   * Further values of a missing row, as in `findOrCreate`. A function gets an input and its index. It is called for the
   * inputs that are missing, one after another in their order, before the first row is written; of equal texts for the
   * first. If it throws, its input has the error, and no other input is affected. Not together with
   * `relations: 'findOrCreate'`.
   *
   * @default none
   */
  readonly create?:
    | DeepPartial<Entity>
    | ((values: DeepPartial<Entity>, index: number) => DeepPartial<Entity> | Promise<DeepPartial<Entity>>)
}

/** Options of `deleteByText`. */
export interface DeleteByTextOptions<Entity = ObjectLiteral> extends ByOptions<Entity> {
  /** Find the row even if it is deleted softly. @default false, as in `find` */
  readonly withDeleted?: boolean
}

/** Options of `existsByText` and `countByText`. */
export interface CountByTextOptions<Entity = ObjectLiteral> extends DeleteByTextOptions<Entity> {
  /**
   * Read from a replica, if the DataSource has any (`replication`). A replica may not have the latest rows yet. A
   * manager with a connection of its own, as in a transaction, reads there all the same.
   *
   * @default false
   */
  readonly replica?: boolean
}

/** Options of `findOneByText`. */
export interface FindOneByTextOptions<Entity = ObjectLiteral> extends CountByTextOptions<Entity>, LoadOptions<Entity> {}

/** A property, or one of an embedded: `meta.size`. */
type PropertyPath<Entity> = Extract<keyof Entity, string> | `${Extract<keyof Entity, string>}.${string}`

/**
 * Returns SQL over two rows, made of their columns, by property. `stored` is the row that exists; `given` is the row that
 * would be created, as `EXCLUDED` is in SQL. The SQL must not hold values of the moment: each SQL is another statement.
 *
 * @example
 * ({ stored, given }) => `greatest(${stored.score}, ${given.score})`
 */
export type SqlOfRow<Entity = never> = (rows: {
  readonly stored: { readonly [Path in PropertyPath<Entity>]: string }
  readonly given: { readonly [Path in PropertyPath<Entity>]: string }
}) => string

/** Options of `upsertByText`. */
export interface UpsertByTextOptions<Entity = ObjectLiteral> extends ByOptions<Entity>, LoadOptions<Entity> {
  /**
   * Properties that an existing row takes over from the values, if these bring them. A relation stands for its join
   * columns, an embedded for all of its columns. `[]` updates nothing, as `findOrCreate` does. An object names them with
   * `true`, and gives SQL for others: `{ title: true, hits: ({ stored }) => \`${stored.hits} + 1\` }`.
   *
   * @default every column that the values bring, but for text, scope, primary key, generated columns, version, the dates
   * of creation, update and deletion, and what is declared with `update: false`. The latter two dates can be listed.
   */
  readonly update?:
    | readonly PropertyPath<Entity>[]
    | { readonly [Path in PropertyPath<Entity>]?: true | SqlOfRow<Entity> }
  /**
   * Values that are used only when the row is created, beside those that the rows give. `update` takes over none of them.
   *
   * @default none
   */
  readonly create?: DeepPartial<Entity>
  /**
   * SQL of a condition, for instance that the given row is newer. A row of which it is not true stays as it is, and is
   * returned like any other.
   *
   * @default every row is updated
   * @example
   * where: ({ stored, given }) => `${stored.fetchedAt} < ${given.fetchedAt}`
   */
  readonly where?: SqlOfRow<Entity>
  /**
   * Leave alone a row that has all the values already, so that neither its version nor its date of update moves.
   * @default false
   */
  readonly skipUpdateIfNoValuesChanged?: boolean
}

const isStrings = (value: unknown): boolean => Array.isArray(value) && value.every((one) => typeof one === 'string')
/** A promise is refused: it shows that a function was called instead of passed. */
const isValues = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !('then' in value)

/** The value that stands for all relations, or for one of them. */
const FIND_OR_CREATE = 'findOrCreate'

/** Whether relations are to be found or created, and not only loaded. */
export const namesFindOrCreate = (relations: unknown): boolean =>
  relations === FIND_OR_CREATE ||
  (typeof relations === 'object' && relations !== null && Object.values(relations).some(namesFindOrCreate))

const isRelations = (value: unknown): boolean => isStrings(value) || isValues(value)
const RELATIONS = 'an object as find() takes it, or a list of paths'

const BY: Rules<ByOptions> = {
  by: { takes: (value) => typeof value === 'string', expected: 'the name of a unique text' },
}

const relationLoadStrategy: Rule = {
  takes: (value) => value === 'join' || value === 'query',
  expected: "'join' or 'query'",
}

const LOAD: Rules<LoadOptions> = {
  relations: { takes: (value) => isRelations(value) && !namesFindOrCreate(value), expected: RELATIONS },
  relationLoadStrategy,
}

const COUNT: Rules<CountByTextOptions> = { ...BY, withDeleted: RULE.boolean, replica: RULE.boolean }

const NESTED_RULES: Rules<NestedOptions> = {
  relations: {
    takes: (value) => value === FIND_OR_CREATE || isRelations(value),
    expected: `'findOrCreate', ${RELATIONS}`,
  },
  relationLoadStrategy,
}

const DELETED: Rules<DeletedOptions> = {
  deleted: oneOf(...(['return', 'restore', 'throw'] satisfies DeletedOption[])),
}

const PROGRESS: Rules<ProgressOptions> = {
  signal: RULE.signal,
  onProgress: RULE.function,
}

const create: Rule = {
  takes: (value) => typeof value === 'function' || isValues(value),
  expected: 'an object with values, or a function that returns one',
}

/** What the options of each operation take; those of an operation of another folder stand beside it. */
export const CALL_RULES: {
  readonly hashOf: Rules<ByOptions>
  readonly findOrCreate: Rules<FindOrCreateOptions>
  readonly findOrCreateMany: Rules<FindOrCreateManyOptions>
  readonly findOneByText: Rules<FindOneByTextOptions>
  readonly existsByText: Rules<CountByTextOptions>
  readonly countByText: Rules<CountByTextOptions>
  readonly deleteByText: Rules<DeleteByTextOptions>
  readonly upsertByText: Rules<UpsertByTextOptions>
} = {
  hashOf: BY,
  findOrCreate: { ...BY, create, ...DELETED, ...NESTED_RULES },
  findOrCreateMany: { ...BY, create, ...DELETED, ...NESTED_RULES, ...PROGRESS },
  findOneByText: { ...COUNT, ...LOAD },
  existsByText: COUNT,
  countByText: COUNT,
  deleteByText: { ...BY, withDeleted: RULE.boolean },
  upsertByText: {
    ...BY,
    update: {
      takes: (value) =>
        isStrings(value) ||
        (isValues(value) && Object.values(value as object).every((one) => one === true || typeof one === 'function')),
      expected: 'a list of property names, or an object with true or a function for each',
    },
    create: { takes: isValues, expected: 'an object with values' },
    where: RULE.function,
    skipUpdateIfNoValuesChanged: RULE.boolean,
    ...LOAD,
  },
}

/**
 * Values as an operation takes them: properties of the entity, and the text that `by` names. That no others are given is
 * checked of a variable too, where TypeScript lets more than a literal pass.
 *
 * @typeParam Given what the caller gives, inferred
 * @typeParam By the name that the option `by` has, inferred; string where it is left out or not known
 */
export type GivenValues<Entity, Given, By = string> = DeepPartial<Entity> &
  NoOthers<Entity, Given> &
  WithText<Entity, Given, By>

// `Given` stands in a branch so that it is inferred; where all is well, a literal is checked against the entity alone.
export type NoOthers<Entity, Given> = keyof Given extends keyof Entity
  ? unknown
  : string extends keyof Given
    ? unknown
    : Given & { readonly [Name in Exclude<keyof Given, keyof Entity>]: NoPropertyOfTheEntity<Name> }

declare const misspelt: unique symbol

/** Nothing has this type: the compiler names it, and so the property. */
export interface NoPropertyOfTheEntity<Name> {
  readonly [misspelt]: Name
}

/** Which property is a unique text no type can tell, unless it is named. */
type WithText<Entity, Given, By> = string extends By | keyof Entity
  ? unknown
  : By extends keyof Given
    ? unknown
    : { readonly [Name in By & keyof Entity]: Entity[Name] }

/** Options whose `by` is inferred. */
export type Naming<By, Options> = Options & { readonly by?: By | undefined }

/** @throws DeclarationError for anything but the EntityManager of a DataSource that was initialized */
export function requireManager(manager: EntityManager): void {
  const given: unknown = manager
  if (isManager(given)) {
    const { isInitialized, entityMetadatas } = manager.connection
    // A destroyed DataSource keeps its entities, and has an error of its own.
    if (isInitialized || entityMetadatas.length > 0) return
    throw new DeclarationError('The DataSource is not initialized. Await dataSource.initialize() before the call.')
  }
  const own = typeof given === 'object' && given !== null && 'manager' in given && isManager(given.manager)
  throw new DeclarationError(
    `Expected an EntityManager as the first argument, got ${kindOf(given)}. ` +
      (own ? 'Pass its property "manager".' : 'Pass dataSource.manager, or the manager of your transaction.'),
  )
}

/** @throws DeclarationError for anything but an array */
export function requireArray(inputs: readonly unknown[]): void {
  if (Array.isArray(inputs)) return
  throw new DeclarationError(
    `Expected an array of objects, got ${kindOf(inputs)}. Pass an array, for instance [...inputs].`,
  )
}

/**
 * @param length of an entry
 * @throws DeclarationError for anything but an array of arrays, the first element of each of which is an entity
 */
export function requireEntries(entries: readonly unknown[], length: number): void {
  const wrong = entries.findIndex((entry) => !Array.isArray(entry) || entry.length !== length)
  if (entries.length > 0 && wrong === -1) return
  throw new DeclarationError(
    `Expected a list of ${length === 2 ? '[entity, values]' : '[entity, id, changes]'}, got ` +
      `${entries.length === 0 ? 'an empty array' : `an array with ${kindOf(entries[wrong])}`}.`,
  )
}

/** Where an operation was called. */
export interface Caller {
  readonly stack?: string
}

/**
 * Must be called before the operation awaits anything. For operations that go through many functions: Node.js keeps ten
 * frames of a stack, and ours would leave none for the caller.
 *
 * @param operation the function that was called
 */
export function callerOf(operation: Function): Caller {
  const caller: Caller = {}
  Error.captureStackTrace(caller, operation)
  return caller
}

/**
 * Puts the caller's lines below our own in the stack of every error that the operation throws or gives as a result. An
 * error of the user's own functions stays as it is.
 */
export const calledFrom = <Result>(caller: Caller, work: Promise<Result>): Promise<Result> =>
  work.then(
    (result) => {
      for (const one of Array.isArray(result) ? (result as { readonly error?: unknown }[]) : []) {
        if (one.error !== undefined) addCaller(one.error, caller)
      }
      return result
    },
    (error: unknown) => {
      addCaller(error, caller)
      throw error
    },
  )

function addCaller(error: unknown, { stack = '' }: Caller): void {
  if (!(error instanceof UniqueTextError || error instanceof QueryFailedError)) return
  const lines = stack.slice(stack.search(/^ {4}at /m))
  // Several rows may have one error.
  if (lines === '' || error.stack === undefined || error.stack.endsWith(lines)) return
  Object.defineProperty(error, 'stack', { value: `${error.stack}\n${lines}`, configurable: true, writable: true })
}

/** Reports to the caller how far the call is, and lets the caller end it between two batches. */
export class Progress {
  private done = 0
  private created = 0
  private rejected = 0

  constructor(private readonly options: ProgressOptions = {}) {}

  /** @throws the signal's reason, once it is aborted */
  check(): void {
    this.options.signal?.throwIfAborted()
  }

  /** Takes what became of inputs. Of equal texts, only the first can be created. */
  count(result: { readonly created: boolean } | { readonly error: unknown }, inputs: number): void {
    this.done += inputs
    if ('error' in result) this.rejected += inputs
    else if (result.created) this.created += 1
  }

  get counts(): FindOrCreateProgress {
    const { done, created, rejected } = this
    return { done, created, rejected }
  }

  report(): void {
    this.options.onProgress?.(this.counts)
  }
}
