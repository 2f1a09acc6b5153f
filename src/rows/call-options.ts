import type { DeepPartial, FindOptionsRelations, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { isManager, kindOf } from './call-arguments'

/** Options of every operation. */
export interface ByOptions<Entity = ObjectLiteral> {
  /**
   * Which of the entity's texts, by the name of its property, or by `as`; required where it has several.
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
export interface NestedOptions<Entity = ObjectLiteral> extends Omit<LoadOptions<Entity>, 'relations'> {
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
  readonly created: number
  /** Inputs that have an error at their index. */
  readonly rejected: number
}

/** Options for calls with many inputs. */
export interface WatchOptions {
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
  extends ByOptions<Entity>, NestedOptions<Entity>, DeletedOptions, WatchOptions {
  /**
   * As with `findOrCreate`. A function gets an input and its index, and is called for the inputs that are missing, one
   * after another in their order, before the first row is written; of equal texts for the first. If it throws, its
   * input has the error, and no other input is affected. Not together with `relations: 'findOrCreate'`.
   *
   * @default none
   */
  readonly create?:
    | DeepPartial<Entity>
    | ((values: DeepPartial<Entity>, index: number) => DeepPartial<Entity> | Promise<DeepPartial<Entity>>)
}

/** Options of `findOrCreateStream` and `findOrCreateTransform`. */
export interface FindOrCreateStreamOptions<Entity = ObjectLiteral>
  extends ByOptions<Entity>, WatchOptions, Pick<FindOrCreateManyOptions<Entity>, 'create' | 'deleted'> {
  /**
   * Rows that are gathered, sorted by hash, and then sent in batches. The results of a window come together, when it is
   * done. Hashes are random: where the unique index is larger than the server's cache, neighbours in a large window share
   * a page of it, which otherwise would be read and written for each of them.
   *
   * @default one batch (3,000) while the index is small beside `shared_buffers`, then by its size up to 250,000
   */
  readonly window?: number | undefined
}

/** Options of `findOneByText`. */
export interface FindOneByTextOptions<Entity = ObjectLiteral> extends ByOptions<Entity>, LoadOptions<Entity> {
  /** Find the row even if it is deleted softly. @default false, as in `find` */
  readonly withDeleted?: boolean
  /**
   * Read from a replica, if the DataSource has any (`replication`). A replica may not have the latest rows yet. A
   * manager with a connection of its own, as in a transaction, reads there all the same.
   *
   * @default false
   */
  readonly replica?: boolean
}

/** Options of `upsertByText`. */
export interface UpsertByTextOptions<Entity = ObjectLiteral> extends ByOptions<Entity>, LoadOptions<Entity> {
  /**
   * Properties that an existing row takes over from the values, if these bring them. A relation stands for its join
   * columns, an embedded for all of its columns. `[]` updates nothing, as `findOrCreate` does.
   *
   * @default every column that the values bring, but for text, scope, primary key, generated columns, version, the dates
   * of creation, update and deletion, and what is declared with `update: false`. The latter two dates can be listed.
   */
  readonly update?: readonly (Extract<keyof Entity, string> | `${Extract<keyof Entity, string>}.${string}`)[]
  /**
   * Leave alone a row that has all the values already, so that neither its version nor its date of update moves.
   * @default false
   */
  readonly skipUpdateIfNoValuesChanged?: boolean
}

/** What an option takes. */
interface Rule {
  readonly takes: (value: unknown) => boolean
  /** Completes "must be …". */
  readonly expected: string
}

const isBoolean = (value: unknown): boolean => typeof value === 'boolean'
const hasMethod = (value: unknown, name: string): boolean =>
  typeof value === 'object' && value !== null && typeof Reflect.get(value, name) === 'function'
const isStrings = (value: unknown): boolean => Array.isArray(value) && value.every((one) => typeof one === 'string')
/** A promise is refused: it shows that a function was called instead of passed. */
const isValues = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !('then' in value)

/** Every option of a call, whichever takes it. */
type OptionName =
  | 'by'
  | 'create'
  | 'deleted'
  | 'withDeleted'
  | 'relations'
  | 'relationLoadStrategy'
  | 'replica'
  | 'update'
  | 'skipUpdateIfNoValuesChanged'
  | 'signal'
  | 'onProgress'
  | 'window'
  | 'manager'
  | 'request'
  | 'expires'
  | 'batch'

const POSITIVE: Rule = {
  takes: (value) => Number.isSafeInteger(value) && Number(value) > 0,
  expected: 'a whole number above 0',
}

const DELETED: readonly unknown[] = ['return', 'restore', 'throw'] satisfies DeletedOption[]

const RULES: Readonly<Record<OptionName, Rule>> = {
  by: { takes: (value) => typeof value === 'string', expected: 'the name of a unique text' },
  create: {
    takes: (value) => typeof value === 'function' || isValues(value),
    expected: 'an object with values, or a function that returns one',
  },
  deleted: { takes: (value) => DELETED.includes(value), expected: `one of ${DELETED.join(', ')}` },
  withDeleted: { takes: isBoolean, expected: 'true or false' },
  relations: {
    takes: (value) => value === FIND_OR_CREATE || isStrings(value) || isValues(value),
    expected: 'an object as find() takes it, or a list of paths',
  },
  relationLoadStrategy: { takes: (value) => value === 'join' || value === 'query', expected: "'join' or 'query'" },
  replica: { takes: isBoolean, expected: 'true or false' },
  update: { takes: isStrings, expected: 'a list of property names' },
  skipUpdateIfNoValuesChanged: { takes: isBoolean, expected: 'true or false' },
  // Recognized by its parts: an AbortSignal of another realm, as in Jest, is not an instance of ours.
  signal: {
    takes: (value) => ['throwIfAborted', 'addEventListener'].every((name) => hasMethod(value, name)),
    expected: 'an AbortSignal',
  },
  onProgress: { takes: (value) => typeof value === 'function', expected: 'a function' },
  window: POSITIVE,
  manager: { takes: isManager, expected: 'an EntityManager' },
  request: { takes: () => true, expected: 'what JSON holds' },
  expires: {
    takes: (value) => typeof value === 'string' || value instanceof Date,
    expected: "a Date, or a duration such as '24 hours'",
  },
  batch: POSITIVE,
}

const LOAD = ['relations', 'relationLoadStrategy'] as const

/** The value that stands for all relations, or for one of them. */
const FIND_OR_CREATE = 'findOrCreate'

/** Whether relations are to be found or created, and not only loaded. */
export const namesFindOrCreate = (relations: unknown): boolean =>
  relations === FIND_OR_CREATE ||
  (typeof relations === 'object' && relations !== null && Object.values(relations).some(namesFindOrCreate))

type Operation =
  | 'findOrCreate'
  | 'findOrCreateMany'
  | 'findOneByText'
  | 'hashOf'
  | 'upsertByText'
  | 'parseMany'
  | 'once'
  | 'removeExpiredTokens'
  | StreamOperation

type StreamOperation = 'findOrCreateStream' | 'findOrCreateTransform'

const STREAM = ['by', 'create', 'deleted', 'signal', 'onProgress', 'window'] as const

const TAKEN: Readonly<Record<Operation, readonly OptionName[]>> = {
  findOrCreate: ['by', 'create', 'deleted', ...LOAD],
  findOrCreateMany: ['by', 'create', 'deleted', ...LOAD, 'signal', 'onProgress'],
  findOrCreateStream: STREAM,
  findOrCreateTransform: STREAM,
  findOneByText: ['by', 'withDeleted', 'replica', ...LOAD],
  hashOf: ['by'],
  upsertByText: ['by', 'update', 'skipUpdateIfNoValuesChanged', ...LOAD],
  parseMany: ['manager', 'deleted', ...LOAD, 'signal', 'onProgress'],
  once: ['request', 'expires'],
  removeExpiredTokens: ['batch'],
}

/** Operations that take relations to find or create. */
const NESTING: readonly Operation[] = ['findOrCreate', 'findOrCreateMany', 'parseMany']

/**
 * Checks the options of a call: JavaScript has no types, and a call whose option is ignored would do something else
 * than was asked for.
 *
 * @throws DeclarationError for an option that the operation does not take, or a value that the option does not
 */
export function checkCallOptions(operation: Operation, options: object): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw new DeclarationError(`${operation}(): expected an object with options, got ${kindOf(options)}.`)
  }
  const taken: readonly string[] = TAKEN[operation]
  for (const [name, value] of Object.entries(options)) {
    if (!taken.includes(name)) {
      throw new DeclarationError(`${operation}(): there is no option "${name}". It takes ${taken.join(', ')}.`)
    }
    const { takes, expected } = RULES[name as OptionName]
    const nested = name === 'relations' && !NESTING.includes(operation) && namesFindOrCreate(value)
    if (value !== undefined && (nested || !takes(value))) {
      throw new DeclarationError(`${operation}(): ${name} must be ${expected}.`)
    }
  }
}
