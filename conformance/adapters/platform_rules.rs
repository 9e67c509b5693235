// The platform's rules in Rust: a program that needs its crate `rules` and `serde_json`.
use rules::EliminationCause::{Hazard, NotEliminated};
use rules::{standard, BoardState, Direction, Point, Snake, SnakeMove, StandardSettings};
use serde_json::{json, Value};
use std::io::{stdin, BufRead};

fn number(value: &Value) -> i32 { value.as_i64().unwrap_or(0) as i32 }

fn points(flat: &Value) -> Vec<Point> {
    flat.as_array().unwrap().chunks(2).map(|c| Point::new(number(&c[0]), number(&c[1]))).collect()
}

fn load(header: &Value, state: &Value) -> BoardState {
    let snake = |(i, s): (usize, &Value)| Snake {
        id: i.to_string(), body: points(&s["b"]), health: number(&s["hp"]),
        eliminated_cause: if s["x"].is_null() { NotEliminated } else { Hazard }, // no rule asks which
        eliminated_by: String::new(), eliminated_on_turn: number(&s["on"]),
    };
    BoardState {
        turn: number(&state["t"]), width: number(&header["w"]), height: number(&header["h"]),
        food: points(&state["f"]), hazards: points(&state["hz"]),
        snakes: state["s"].as_array().unwrap().iter().enumerate().map(snake).collect(),
    }
}

fn step(board: &mut BoardState, header: &Value, moves: &Value) -> Value {
    let hazard_damage_per_turn = number(&header["settings"]["hazardDamagePerTurn"]);
    let settings = StandardSettings { hazard_damage_per_turn, ..Default::default() };
    let mut chosen = Vec::new();
    for (snake, word) in board.snakes.iter().zip(moves.as_array().unwrap()) {
        if let Some(word) = word.as_str() {
            let Ok(direction) = word.parse::<Direction>() else { return json!({"refused": word}) };
            chosen.push(SnakeMove { id: snake.id.clone(), direction });
        }
    }
    standard::execute_turn(board, &chosen, &settings).unwrap();
    let snakes: Vec<Value> = board.snakes.iter().map(|s| {
        let b: Vec<i32> = s.body.iter().flat_map(|p| [p.x, p.y]).collect();
        if s.eliminated_cause.is_eliminated() { Value::Null } else { json!({"hp": s.health, "b": b}) }
    }).collect();
    json!({"t": board.turn, "s": snakes, "over": standard::is_game_over(board)})
}

fn main() {
    let (mut header, mut board) = (Value::Null, None);
    for line in stdin().lock().lines() {
        let asked: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let answer = if asked["hello"] == 1 {
            json!({"engine": "rules in Rust", "lacks": ["start", "f", "hz", "x", "by", "on", "dead"]})
        } else if !asked["load"].is_null() {
            (header, board) = (asked["load"].clone(), Some(load(&asked["load"], &asked["state"])));
            json!({})
        } else if header["solo"] == true || header["ruleset"] != "standard" && header["ruleset"] != "royale" {
            json!({"refused": "standard and royale alone"})
        } else {
            step(board.as_mut().unwrap(), &header, &asked["step"])
        };
        println!("{answer}");
    }
}
