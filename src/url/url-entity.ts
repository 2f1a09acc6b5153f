import {
  Check,
  Column,
  type DeepPartial,
  Entity,
  type EntityManager,
  type FindOptionsWhere,
  In,
  IsNull,
  PrimaryGeneratedColumn,
  type ValueTransformer,
} from 'typeorm'
import {
  CALL_RULES,
  findOneByText,
  type FindOneByTextOptions,
  findOrCreate,
  findOrCreateMany,
  type FindOrCreateManyOptions,
  type FindOrCreateManyResult,
  type FindOrCreateOptions,
  type FindOrCreateResult,
  type GivenValues,
  type Naming,
  UniqueText,
  UniqueTextEntity,
} from '../core'
import { DeclarationError } from '../errors'
import { checkOptions, isManager, kindOf, oneOf, RULE, type Rules } from '../options'
import {
  formatUrl,
  markNormal,
  normalizeParts,
  parseUrl,
  pathComponent,
  pathComponentHash,
  partsOrNull,
  splitUrl,
  type UrlParts,
  type UserInformation,
} from './url-parts'

type UrlClass<Entity extends Url> = (new () => Entity) & typeof Url

/** The values that `parse` accepts. */
type UrlText = string | URL | null | undefined

/** Options of `Url.parse`. */
export interface ParseOptions {
  /**
   * The treatment of a URL with a user name or a password: `'refuse'` returns null, `'strip'` removes both. Neither is
   * ever stored.
   *
   * @default 'refuse'
   */
  readonly userInformation?: UserInformation
  /** The manager of the caller's transaction. @default the manager of the entity's DataSource */
  readonly manager?: EntityManager
}

/** Options of `Url.parseMany`: the options of `Url.parse` and `findOrCreateMany`, except those for the values. */
export interface ParseManyOptions<Entity = Url>
  extends ParseOptions, Omit<FindOrCreateManyOptions<Entity>, 'by' | 'create'> {}

const PARSE_RULES: Rules<ParseOptions> = {
  userInformation: oneOf('refuse', 'strip'),
  manager: RULE.manager,
}

const { by: _by, create: _create, ...MANY_RULES } = CALL_RULES.findOrCreateMany
const PARSE_MANY_RULES: Rules<ParseManyOptions> = { ...MANY_RULES, ...PARSE_RULES }

/** Only for conditions, because rows are normalized as a whole. */
const lowerCased: ValueTransformer = {
  to: (value: unknown) => (typeof value === 'string' ? value.toLowerCase() : value),
  from: (value: unknown) => value,
}

/** The types choose the function of the library, whatever others of its name exist. */
const IS_URL =
  '"unique_text_is_url_v1"("scheme"::pg_catalog.text, "host"::pg_catalog.text, "port", "path", "query", "fragment")'

/**
 * An http or https URL, unique at any length, in table `urls`. Add it to the entities of your DataSource and refer to
 * it by foreign keys: its id never changes, and a stored URL is immutable.
 *
 * `parse`, `save`, `insert`, `upsert` and every operation of this package normalize its parts as a URL, however they
 * are spelled. A check refuses values that raw SQL could write although no URL has them. `Url.findOneByText(text)`
 * finds a URL, and `Url.conditions(text)` returns conditions for `find`, also for entities that refer to a URL. The
 * parts that `parseUrl` returns do not work as conditions, because TypeORM ignores or refuses a null.
 */
@Entity({ name: 'urls' })
@Check('url_parts_check', IS_URL)
@UniqueText({
  as: 'url',
  columns: ['path', { property: 'query', prefix: '?' }, { property: 'fragment', prefix: '#' }],
  scope: ['host', 'scheme', 'port'],
  immutable: true,
  indexName: 'url_unique_index',
  hidden: { hash: 'path_component_hash', number: 'hash_number', chained: 'hash_chained' },
  parse: (text: string) => markNormal(splitUrl(text)),
  normalizeValues: normalizeParts,
})
export class Url extends UniqueTextEntity {
  /** A bigint, which the driver returns as a string. */
  @PrimaryGeneratedColumn('identity', { type: 'bigint' })
  id!: string

  /** `http` or `https`. */
  @Column({ type: 'varchar', length: 5, transformer: lowerCased })
  scheme!: string

  /** The host in lower case and ASCII; IPv6 is in brackets. */
  @Column({ type: 'varchar', length: 256, transformer: lowerCased })
  host!: string

  /** 0 means the scheme's default. */
  @Column({ type: 'integer', default: 0 })
  port!: number

  /** Begins with `/`. */
  @Column({ type: 'text' })
  path!: string

  /** Without its `?`: `''` for `x?`, null if there is none. */
  @Column({ type: 'text', nullable: true })
  query!: string | null

  /** Without its `#`: `''` for `x#`, null if there is none. */
  @Column({ type: 'text', nullable: true })
  fragment!: string | null

  /**
   * Finds or creates the row of a URL.
   *
   * @param options the manager of the caller's transaction, alone or among other options
   * @returns null unless the text is an http or https URL with a host; also null for port 0, and for user information
   * that is not stripped
   * @throws as `findOrCreate` does
   * @example
   * const url = await Url.parse('HTTP://Example.com:80/a/../b?q#f')
   * String(url) // 'http://example.com/b?q#f'
   */
  static async parse<Entity extends Url>(
    this: UrlClass<Entity>,
    text: UrlText,
    options: EntityManager | ParseOptions = {},
  ): Promise<Entity | null> {
    const given = isManager(options) ? { manager: options as EntityManager } : (options as ParseOptions)
    checkOptions('parse()', given, PARSE_RULES)
    const { manager = this.getRepository().manager, userInformation } = given
    const parts = partsOrNull(text, userInformation)
    if (parts === null) return null
    const { entity } = await findOrCreate<Entity>(manager, this, valuesOf<Entity>(parts))
    return entity
  }

  /**
   * Finds or creates the rows of many URLs, in batches of one round trip each. The results have the order of the texts,
   * with null if `parse` returns null. A row that the database refuses has its error and affects no other. Among equal
   * URLs, only the first can be created. `onProgress` counts only texts that are URLs.
   *
   * @throws as `findOrCreateMany` does
   * @example
   * const [first] = await Url.parseMany(['http://example.com/a', 'http://example.com/b'])
   * if (first && 'entity' in first) console.log(first.entity.id, first.created)
   */
  static async parseMany<Entity extends Url>(
    this: UrlClass<Entity>,
    texts: readonly UrlText[],
    options: ParseManyOptions<NoInfer<Entity>> = {},
  ): Promise<(FindOrCreateManyResult<Entity> | null)[]> {
    checkOptions('parseMany()', options, PARSE_MANY_RULES)
    if (!Array.isArray(texts)) {
      throw new DeclarationError(`parseMany(): expected an array of texts, got ${kindOf(texts)}. Pass an array.`)
    }
    const { manager = this.getRepository().manager, userInformation, ...rest } = options
    const parsed = texts.map((text) => partsOrNull(text, userInformation))
    const values = parsed.filter((parts) => parts !== null).map((parts) => valuesOf<Entity>(parts))
    const found = (await findOrCreateMany<Entity>(manager, this, values, rest)).values()
    return parsed.map((parts) => (parts === null ? null : (found.next().value ?? null)))
  }

  /**
   * Returns the row of a URL, and inserts it if there is none. Takes a text, a JavaScript `URL`, or the parts of a URL.
   *
   * @throws TextRejectedError if `parse` returns null
   * @example
   * const { entity, created } = await Url.findOrCreate('http://example.com/')
   */
  static override async findOrCreate<Entity extends Url>(
    this: UrlClass<Entity>,
    text: string | URL,
    options?: FindOrCreateOptions<NoInfer<Entity>>,
  ): Promise<FindOrCreateResult<Entity>>
  static override async findOrCreate<
    Entity extends UniqueTextEntity,
    Given = DeepPartial<Entity>,
    By extends string = string,
  >(
    this: (new () => Entity) & typeof UniqueTextEntity,
    parts: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
    options?: Naming<By, FindOrCreateOptions<NoInfer<Entity>>>,
  ): Promise<FindOrCreateResult<Entity>>
  static override async findOrCreate<Entity extends Url>(
    this: UrlClass<Entity>,
    given: string | URL | DeepPartial<Entity>,
    options?: FindOrCreateOptions<NoInfer<Entity>>,
  ): Promise<FindOrCreateResult<Entity>> {
    const values = typeof given === 'string' || given instanceof URL ? valuesOf<Entity>(splitUrl(given)) : given
    return await findOrCreate<Entity>(this.getRepository().manager, this, values, options)
  }

  /**
   * Finds the row of a URL by the unique index. Takes a text, a JavaScript `URL`, or the parts of a URL.
   *
   * @returns null also for a text for which `parse` returns null
   * @example
   * const url = await Url.findOneByText('HTTP://Example.com:80')
   */
  static override async findOneByText<Entity extends Url>(
    this: UrlClass<Entity>,
    text: string | URL,
    options?: FindOneByTextOptions<NoInfer<Entity>>,
  ): Promise<Entity | null>
  static override async findOneByText<
    Entity extends UniqueTextEntity,
    Given = DeepPartial<Entity>,
    By extends string = string,
  >(
    this: (new () => Entity) & typeof UniqueTextEntity,
    parts: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
    options?: Naming<By, FindOneByTextOptions<NoInfer<Entity>>>,
  ): Promise<Entity | null>
  static override async findOneByText<Entity extends Url>(
    this: UrlClass<Entity>,
    given: string | URL | DeepPartial<Entity>,
    options?: FindOneByTextOptions<NoInfer<Entity>>,
  ): Promise<Entity | null> {
    const isWhole = typeof given === 'string' || given instanceof URL
    const parts = isWhole ? parseUrl(given) : null
    if (isWhole && parts === null) return null
    const values = parts === null ? (given as DeepPartial<Entity>) : valuesOf<Entity>(parts)
    return await findOneByText<Entity>(this.getRepository().manager, this, values, options)
  }

  /**
   * Returns conditions on a URL, for `find` and for entities that refer to a URL. They use the unique index.
   *
   * @returns conditions that no row meets, if `parse` returns null for the text
   * @example
   * await links.findBy({ url: Url.conditions('http://example.com/') })
   */
  static conditions(text: string | URL): FindOptionsWhere<Url> {
    const parts = parseUrl(text)
    if (parts === null) return { id: In([]) }
    return { ...parts, query: parts.query ?? IsNull(), fragment: parts.fragment ?? IsNull() }
  }

  /**
   * The path, `?query` and `#fragment`: the text that is hashed.
   *
   * @throws DeclarationError if one of them was not selected
   */
  get pathComponent(): string {
    return pathComponent(this)
  }

  /**
   * The MD5 of `pathComponent`, 32 hex digits.
   *
   * @throws DeclarationError if a part of it was not selected
   */
  get pathComponentHash(): string {
    return pathComponentHash(this)
  }

  /**
   * Returns the URL.
   *
   * @throws DeclarationError if a part of it was not selected
   */
  override toString(): string {
    return formatUrl(this)
  }
}

/** Marks parts as normal, so that an operation does not normalize them again. */
const valuesOf = <Entity extends Url>(parts: UrlParts): DeepPartial<Entity> => markNormal(parts) as DeepPartial<Entity>
