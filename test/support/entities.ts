import { Column, Entity, JoinTable, ManyToMany, ManyToOne, PrimaryGeneratedColumn } from 'typeorm'
import { UniqueText } from '../../src'

/** Entities that several test files use. A file whose test depends on a column of its own declares its own class. */

@Entity()
export class Page {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() url!: string
}

@Entity()
export class Author {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() name!: string
}

@Entity()
export class Tag {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() name!: string
}

/** A book with an author and tags; five characters are the most that its code can have. */
@Entity()
export class Book {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() title!: string
  @Column({ type: 'varchar', length: 5, nullable: true }) code!: string | null
  @ManyToOne(() => Author, { nullable: true, cascade: true }) author!: Author | null
  @ManyToMany(() => Tag, { cascade: true }) @JoinTable() tags!: Tag[]
}

/** What a token of `once` pays. */
@Entity()
export class Payment {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @Column({ type: 'text' }) token!: string
}
