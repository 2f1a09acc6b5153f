import { BaseEntity, type DeepPartial, type ObjectLiteral, type Repository } from 'typeorm'
import { countByText, deleteByText, existsByText } from './by-text'
import type {
  CountByTextOptions,
  DeleteByTextOptions,
  FindOneByTextOptions,
  FindOrCreateManyOptions,
  FindOrCreateOptions,
  GivenValues,
  Naming,
  UpsertByTextOptions,
} from './call-options'
import { findOrCreate, findOrCreateMany } from './find-or-create'
import { insertOrFail, type Writable } from './insert-or-fail'
import type { FindOrCreateManyResult } from './many'
import type { FindOrCreateResult } from './one-row'
import { type ChangeWithKey, type RowId, updateOrFail } from './update-or-fail'
import { upsertByText } from './upsert'
import { findOneByText } from './look-up'

type EntityClass<Entity extends UniqueTextEntity> = (new () => Entity) & typeof UniqueTextEntity

/**
 * TypeORM's BaseEntity with the operations of this package. Each of them uses the entity's DataSource, outside your
 * transactions. In a transaction, call the functions with its manager.
 *
 * @example
 * const { entity, created } = await Page.findOrCreate({ url: 'http://example.com/' })
 */
export class UniqueTextEntity extends BaseEntity {
  /** Finds or creates the row of a text, outside of your transactions. */
  static async findOrCreate<Entity extends UniqueTextEntity, Given = DeepPartial<Entity>, By extends string = string>(
    this: EntityClass<Entity>,
    values: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
    options?: Naming<By, FindOrCreateOptions<NoInfer<Entity>>>,
  ): Promise<FindOrCreateResult<Entity>> {
    const { manager, target } = this.getRepository<Entity>()
    return await findOrCreate(manager, target, values, options)
  }

  /** Finds or creates the rows of many texts, outside of your transactions. */
  static async findOrCreateMany<
    Entity extends UniqueTextEntity,
    Given = DeepPartial<Entity>,
    By extends string = string,
  >(
    this: EntityClass<Entity>,
    inputs: readonly GivenValues<NoInfer<Entity>, Given, NoInfer<By>>[],
    options?: Naming<By, FindOrCreateManyOptions<NoInfer<Entity>>>,
  ): Promise<FindOrCreateManyResult<Entity>[]> {
    const { manager, target } = this.getRepository<Entity>()
    return await findOrCreateMany(manager, target, inputs, options)
  }

  /** Finds the row of a text, outside of your transactions. */
  static async findOneByText<Entity extends UniqueTextEntity, Given = DeepPartial<Entity>, By extends string = string>(
    this: EntityClass<Entity>,
    values: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
    options?: Naming<By, FindOneByTextOptions<NoInfer<Entity>>>,
  ): Promise<Entity | null> {
    const { manager, target } = this.getRepository<Entity>()
    return await findOneByText(manager, target, values, options)
  }

  /** Returns whether a row holds the text, outside of your transactions. */
  static async existsByText<Entity extends UniqueTextEntity, Given = DeepPartial<Entity>, By extends string = string>(
    this: EntityClass<Entity>,
    values: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
    options?: Naming<By, CountByTextOptions<NoInfer<Entity>>>,
  ): Promise<boolean> {
    const { manager, target } = this.getRepository<Entity>()
    return await existsByText(manager, target, values, options)
  }

  /** Returns how many rows hold one of the texts, outside of your transactions. */
  static async countByText<Entity extends UniqueTextEntity, Given = DeepPartial<Entity>, By extends string = string>(
    this: EntityClass<Entity>,
    inputs: readonly GivenValues<NoInfer<Entity>, Given, NoInfer<By>>[],
    options?: Naming<By, CountByTextOptions<NoInfer<Entity>>>,
  ): Promise<number> {
    const { manager, target } = this.getRepository<Entity>()
    return await countByText(manager, target, inputs, options)
  }

  /** Deletes the row that holds the text, outside of your transactions. */
  static async deleteByText<Entity extends UniqueTextEntity, Given = DeepPartial<Entity>, By extends string = string>(
    this: EntityClass<Entity>,
    values: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
    options?: Naming<By, DeleteByTextOptions<NoInfer<Entity>>>,
  ): Promise<boolean> {
    const { manager, target } = this.getRepository<Entity>()
    return await deleteByText(manager, target, values, options)
  }

  /** Updates the rows that hold the texts, and creates the missing ones, outside of your transactions. */
  static async upsertByText<Entity extends UniqueTextEntity>(
    this: EntityClass<Entity>,
    rows: readonly DeepPartial<NoInfer<Entity>>[],
    options?: UpsertByTextOptions<NoInfer<Entity>>,
  ): Promise<FindOrCreateManyResult<Entity>[]>
  /** Updates the rows that hold the texts, and creates the missing ones, outside of your transactions. */
  static async upsertByText<Entity extends UniqueTextEntity>(
    this: EntityClass<Entity>,
    row: DeepPartial<NoInfer<Entity>>,
    options?: UpsertByTextOptions<NoInfer<Entity>>,
  ): Promise<FindOrCreateResult<Entity>>
  static async upsertByText<Entity extends UniqueTextEntity>(
    this: EntityClass<Entity>,
    rows: DeepPartial<NoInfer<Entity>> & readonly DeepPartial<NoInfer<Entity>>[],
    options?: UpsertByTextOptions<NoInfer<Entity>>,
  ): Promise<FindOrCreateManyResult<Entity>[] | FindOrCreateResult<Entity>> {
    const { manager, target } = this.getRepository<Entity>()
    return await upsertByText<Entity>(manager, target, rows, options)
  }

  /** Inserts rows, or throws a `TextTakenError` with every taken text, outside of your transactions. */
  static async insertOrFail<Entity extends UniqueTextEntity>(
    this: EntityClass<Entity>,
    values: readonly Writable<NoInfer<Entity>>[],
  ): Promise<Entity[]>
  /** Inserts rows, or throws a `TextTakenError` with every taken text, outside of your transactions. */
  static async insertOrFail<Entity extends UniqueTextEntity>(
    this: EntityClass<Entity>,
    values: Writable<NoInfer<Entity>>,
  ): Promise<Entity>
  static async insertOrFail<Entity extends UniqueTextEntity>(
    this: EntityClass<Entity>,
    values: Writable<Entity> | readonly Writable<Entity>[],
  ): Promise<unknown> {
    const { manager, target } = this.getRepository<Entity>()
    return await insertOrFail(manager, target, values as DeepPartial<Entity>)
  }

  /** Updates a row, or throws a `TextTakenError` with every taken text, outside of your transactions. */
  static async updateOrFail<Entity extends UniqueTextEntity>(
    this: EntityClass<Entity>,
    id: RowId<NoInfer<Entity>>,
    changes: Writable<NoInfer<Entity>>,
  ): Promise<Entity>
  /** Updates rows at once, or throws a `TextTakenError` with every taken text, outside of your transactions. */
  static async updateOrFail<Entity extends UniqueTextEntity>(
    this: EntityClass<Entity>,
    changes: readonly ChangeWithKey<NoInfer<Entity>>[],
  ): Promise<Entity[]>
  static async updateOrFail<Entity extends UniqueTextEntity>(
    this: EntityClass<Entity>,
    id: RowId<Entity> & readonly ChangeWithKey<Entity>[],
    changes?: Writable<Entity>,
  ): Promise<unknown> {
    const { manager, target } = this.getRepository<Entity>()
    return await updateOrFail<Entity>(manager, target, id, changes as Writable<Entity>)
  }
}

/** The methods that `repository.extend(uniqueTextMethods)` adds. Each uses the repository's own manager. */
export interface UniqueTextMethods {
  /** Finds or creates the row of a text, with the repository's manager. */
  findOrCreate<Entity extends ObjectLiteral, Given = DeepPartial<Entity>, By extends string = string>(
    this: Repository<Entity>,
    values: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
    options?: Naming<By, FindOrCreateOptions<NoInfer<Entity>>>,
  ): Promise<FindOrCreateResult<Entity>>
  /** Finds or creates the rows of many texts, with the repository's manager. */
  findOrCreateMany<Entity extends ObjectLiteral, Given = DeepPartial<Entity>, By extends string = string>(
    this: Repository<Entity>,
    inputs: readonly GivenValues<NoInfer<Entity>, Given, NoInfer<By>>[],
    options?: Naming<By, FindOrCreateManyOptions<NoInfer<Entity>>>,
  ): Promise<FindOrCreateManyResult<Entity>[]>
  /** Finds the row of a text, with the repository's manager. */
  findOneByText<Entity extends ObjectLiteral, Given = DeepPartial<Entity>, By extends string = string>(
    this: Repository<Entity>,
    values: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
    options?: Naming<By, FindOneByTextOptions<NoInfer<Entity>>>,
  ): Promise<Entity | null>
  /** Returns whether a row holds the text, with the repository's manager. */
  existsByText<Entity extends ObjectLiteral, Given = DeepPartial<Entity>, By extends string = string>(
    this: Repository<Entity>,
    values: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
    options?: Naming<By, CountByTextOptions<NoInfer<Entity>>>,
  ): Promise<boolean>
  /** Returns how many rows hold one of the texts, with the repository's manager. */
  countByText<Entity extends ObjectLiteral, Given = DeepPartial<Entity>, By extends string = string>(
    this: Repository<Entity>,
    inputs: readonly GivenValues<NoInfer<Entity>, Given, NoInfer<By>>[],
    options?: Naming<By, CountByTextOptions<NoInfer<Entity>>>,
  ): Promise<number>
  /** Deletes the row that holds the text, with the repository's manager. */
  deleteByText<Entity extends ObjectLiteral, Given = DeepPartial<Entity>, By extends string = string>(
    this: Repository<Entity>,
    values: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
    options?: Naming<By, DeleteByTextOptions<NoInfer<Entity>>>,
  ): Promise<boolean>
  /** Updates the rows that hold the texts, and creates the missing ones, with the repository's manager. */
  upsertByText<Entity extends ObjectLiteral>(
    this: Repository<Entity>,
    rows: readonly DeepPartial<NoInfer<Entity>>[],
    options?: UpsertByTextOptions<NoInfer<Entity>>,
  ): Promise<FindOrCreateManyResult<Entity>[]>
  /** Updates the rows that hold the texts, and creates the missing ones, with the repository's manager. */
  upsertByText<Entity extends ObjectLiteral>(
    this: Repository<Entity>,
    row: DeepPartial<NoInfer<Entity>>,
    options?: UpsertByTextOptions<NoInfer<Entity>>,
  ): Promise<FindOrCreateResult<Entity>>
  /** Inserts rows, or throws a `TextTakenError` with every taken text, with the repository's manager. */
  insertOrFail<Entity extends ObjectLiteral>(
    this: Repository<Entity>,
    values: readonly Writable<NoInfer<Entity>>[],
  ): Promise<Entity[]>
  /** Inserts rows, or throws a `TextTakenError` with every taken text, with the repository's manager. */
  insertOrFail<Entity extends ObjectLiteral>(
    this: Repository<Entity>,
    values: Writable<NoInfer<Entity>>,
  ): Promise<Entity>
  /** Updates a row, or throws a `TextTakenError` with every taken text, with the repository's manager. */
  updateOrFail<Entity extends ObjectLiteral>(
    this: Repository<Entity>,
    id: RowId<NoInfer<Entity>>,
    changes: Writable<NoInfer<Entity>>,
  ): Promise<Entity>
  /** Updates rows at once, or throws a `TextTakenError` with every taken text, with the repository's manager. */
  updateOrFail<Entity extends ObjectLiteral>(
    this: Repository<Entity>,
    changes: readonly ChangeWithKey<NoInfer<Entity>>[],
  ): Promise<Entity[]>
}

/**
 * The operations of this package as methods of a repository.
 *
 * @example
 * const pages = dataSource.getRepository(Page).extend(uniqueTextMethods)
 * const { entity, created } = await pages.findOrCreate({ url: 'http://example.com/' })
 */
export const uniqueTextMethods: UniqueTextMethods = {
  async findOrCreate(values, options) {
    return await findOrCreate(this.manager, this.target, values, options)
  },
  async findOrCreateMany(inputs, options) {
    return await findOrCreateMany(this.manager, this.target, inputs, options)
  },
  async findOneByText(values, options) {
    return await findOneByText(this.manager, this.target, values, options)
  },
  async existsByText(values, options) {
    return await existsByText(this.manager, this.target, values, options)
  },
  async countByText(inputs, options) {
    return await countByText(this.manager, this.target, inputs, options)
  },
  async deleteByText(values, options) {
    return await deleteByText(this.manager, this.target, values, options)
  },
  // The argument determines which overload it is.
  async upsertByText<Entity extends ObjectLiteral>(
    this: Repository<Entity>,
    rows: DeepPartial<Entity> & readonly DeepPartial<Entity>[],
    options?: UpsertByTextOptions<Entity>,
  ): Promise<never> {
    return (await upsertByText<Entity>(this.manager, this.target, rows, options)) as never
  },
  async insertOrFail<Entity extends ObjectLiteral>(
    this: Repository<Entity>,
    values: Writable<Entity> | readonly Writable<Entity>[],
  ): Promise<Entity & Entity[]> {
    return (await insertOrFail(this.manager, this.target, values as DeepPartial<Entity>)) as Entity & Entity[]
  },
  async updateOrFail<Entity extends ObjectLiteral>(
    this: Repository<Entity>,
    id: RowId<Entity> & readonly ChangeWithKey<Entity>[],
    changes?: Writable<Entity>,
  ): Promise<never> {
    return (await updateOrFail<Entity>(this.manager, this.target, id, changes as Writable<Entity>)) as never
  },
}
